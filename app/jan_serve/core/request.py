"""GenerationRequest: what every dialect produces and `generation` consumes."""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.core.constraint import Constraint
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.messages import Message, Tool, ToolChoice
from jan_serve.core.sampling import SamplingParams, StopConditions


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Text that is tokenised with special tokens parsed, and BOS as the model says."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Token ids, used as they are. param: the field that they came in, which errors name."""

    ids: tuple[int, ...]
    param: str = "prompt"


class InfillFile(msgspec.Struct, frozen=True):
    """A file, or a part of one, that an editor shows beside the one with the gap."""

    filename: str
    text: str


class InfillPrompt(msgspec.Struct, frozen=True, tag="infill"):
    """Text before and after the gap that is to be filled, for a model with FIM tokens.

    prefix_only: without FIM tokens, continue the prefix (Started.infilled tells) instead of refusing the request.
    extra: other files, the least important first. middle: the beginning of what fills the gap. may_cut: where the
    context is too short, the first files go, then the far ends of prefix and suffix (Started.truncated tells).
    """

    prefix: str
    suffix: str
    prefix_only: bool = False
    extra: tuple[InfillFile, ...] = ()
    middle: str = ""
    may_cut: bool = False


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """Messages for the model's chat template, and what reaches the template beside them.

    parallel_tool_calls: whether an answer may hold several calls. split_thoughts: reasoning comes apart from the text;
    else it stays there with its markers. reasoning_budget: tokens after which a thought is closed; None is no limit.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    split_thoughts: bool = True
    reasoning_budget: int | None = None
    template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


Prompt = TextPrompt | TokenPrompt | InfillPrompt | ChatPrompt


class AdapterChoice(msgspec.Struct, frozen=True):
    """A LoRA adapter of the model by its name, or by its place among them (from 0). scale: None is as configured."""

    adapter: str | int
    scale: float | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt and how to continue it.

    model: the name the caller used; None is the default model.
    n: choices to return. best_of: choices to generate, of which the n with the highest mean
    log-probability are returned; never below n.
    logprobs: None for none, k for the chosen token's and the k most likely ones'.
    prompt_logprobs: the same for the prompt (which disables reuse of its cached prefix).
    return_tokens: TokenInfo of every token, with or without logprobs. vocabulary_entries: with their entries.
    skip_special_tokens: control tokens do not appear in the text.
    logit_bias_text: as sampling.logit_bias, but by text: the bias goes to every token of it.
    keep_state: keep what is computed of the prompt for another server. resume: go on from what another one keeps.
    given: the fields of sampling and stopping that the caller set; what is configured for the model goes for the
    others. None: all of them.
    adapters: LoRA adapters to apply, none of the others; None is what the model's name says.
    keep_alive_s: how long the model stays loaded afterwards; negative is for ever, None is as configured.
    """

    model: str | None = None
    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    logit_bias_text: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    stopping: StopConditions = StopConditions()
    constraint: Constraint | None = None
    n: int = 1
    best_of: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_tokens: bool = False
    vocabulary_entries: bool = False
    skip_special_tokens: bool = True
    keep_state: bool = False
    resume: RemoteState | None = None
    given: frozenset[str] | None = None
    adapters: tuple[AdapterChoice, ...] | None = None
    keep_alive_s: float | None = None
