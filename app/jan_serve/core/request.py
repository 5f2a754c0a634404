"""GenerationRequest, which dialects produce and `generation` consumes, and its prompts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from jan_serve.core.constraint import Constraint
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.messages import CallForm, ContentPart, Message, Tool, ToolChoice
from jan_serve.core.sampling import SamplingParams, StopConditions


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Tokenised with special tokens parsed, and BOS if the model adds it."""

    text: str


class PartsPrompt(msgspec.Struct, frozen=True, tag="parts"):
    """A TextPrompt with images between the texts. add_special: BOS if the model adds it."""

    parts: tuple[ContentPart, ...]
    add_special: bool = True


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Token ids, used unchanged. param: the request field, for errors. text: what they were made of, if known."""

    ids: tuple[int, ...]
    param: str = "prompt"
    text: str = ""


class InfillFile(msgspec.Struct, frozen=True):
    """Another file, or part of one, as context for the file with the gap."""

    filename: str
    text: str


class InfillPrompt(msgspec.Struct, frozen=True, tag="infill"):
    """Text before and after a gap to fill, for a model with FIM tokens.

    prefix_only: without FIM tokens, continue the prefix instead of rejecting the request (see Started.infilled).
    extra: other files, the least important first. middle: the beginning of the text in the gap. may_cut: if the context
    is too short, drop the first files, then the far ends of prefix and suffix (see Started.truncated).
    """

    prefix: str
    suffix: str
    prefix_only: bool = False
    extra: tuple[InfillFile, ...] = ()
    middle: str = ""
    may_cut: bool = False


THINKING_SWITCH: Final = "enable_thinking"
"""The variable by which most chat templates, and requests, switch thinking on and off."""


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """Messages and other arguments of the model's chat template.

    parallel_tool_calls: an answer may have several calls. split_thoughts: separate reasoning from the text; else it
    stays there with its markers. reasoning_budget: tokens after which a thought is closed; None is no limit.
    opens_answer: the prompt ends with the beginning of an answer. continues_answer: a final message of the assistant is
    that beginning, whatever `opens_answer` is.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    split_thoughts: bool = True
    reasoning_budget: int | None = None
    opens_answer: bool = True
    continues_answer: bool = True
    template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def asks_for_thoughts(self) -> bool | None:
        """Whether the request switches thinking on or off; None if it says nothing of it."""
        for name in (THINKING_SWITCH, "thinking"):
            if self.template_kwargs.get(name) is not None:
                return bool(self.template_kwargs[name])
        if self.reasoning_budget == 0:
            return False
        effort = self.template_kwargs.get("reasoning_effort")
        return None if effort is None else effort != "none"

    @property
    def thinks(self) -> bool:
        """Whether the model may think: unless the request switches it off."""
        return self.asks_for_thoughts is not False


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to render. template: None if the model has none. now: the local time, for templates that print it."""

    prompt: ChatPrompt
    template: str | None
    bos_token: str = ""
    eos_token: str = ""
    now: datetime


class RenderedChat(msgspec.Struct, frozen=True):
    """A chat as text. form: the template's own form of calls, where the chat has tools. warnings: of what its messages
    hold and the text lacks."""

    text: str
    form: CallForm | None = None
    warnings: tuple[str, ...] = ()


Prompt = TextPrompt | PartsPrompt | TokenPrompt | InfillPrompt | ChatPrompt


class AdapterChoice(msgspec.Struct, frozen=True):
    """A LoRA adapter of the model, by name or index (from 0). scale: None is the configured one."""

    adapter: str | int
    scale: float | None = None


RESPONSE_FORMAT: Final = "response_format"


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt and how to continue it.

    model: the name in the request; None is the default model.
    constraint_field: the request field of the constraint, for errors.
    n: choices to return. best_of: choices to generate, of which the n with the highest mean
    log-probability are returned; at least n.
    logprobs: None for none, k for those of the chosen and the k most likely tokens.
    prompt_logprobs: the same for the prompt (disables reuse of its cached prefix).
    return_tokens: TokenInfo of every token, with or without logprobs. vocabulary_entries: with their entries.
    reports_progress: the answer has Progress events.
    skip_special_tokens: leave control tokens out of the text.
    logit_bias_text: as sampling.logit_bias, by text: the bias applies to every token of it.
    keep_state: keep the state of the prompt for another server. resume: continue from another server's state.
    given: the fields of sampling and stopping that the client set; the model's configured defaults replace the
    others. None: all fields.
    adapters: the LoRA adapters to apply, and no others; None is the one in the model's name, if any.
    ttl_s: how long the model stays loaded afterwards; negative is forever, None is as configured.
    warnings: sentences about what the dialect left out.
    """

    model: str | None = None
    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    logit_bias_text: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    stopping: StopConditions = StopConditions()
    constraint: Constraint | None = None
    constraint_field: str = RESPONSE_FORMAT
    n: int = 1
    best_of: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_tokens: bool = False
    reports_progress: bool = False
    vocabulary_entries: bool = False
    skip_special_tokens: bool = True
    keep_state: bool = False
    resume: RemoteState | None = None
    given: frozenset[str] | None = None
    adapters: tuple[AdapterChoice, ...] | None = None
    ttl_s: float | None = None
    warnings: tuple[str, ...] = ()
