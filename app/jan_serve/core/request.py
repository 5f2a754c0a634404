"""GenerationRequest, which dialects produce and `generation` consumes: its prompts, sampling and stop conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from jan_serve.core.constraint import Constraint
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.messages import CallForm, ContentPart, Message, Tool, ToolChoice


class Watermark(msgspec.Struct, frozen=True):
    """Parameters of `text.watermark`. gamma: green share of the vocabulary; delta: value added to green logits."""

    gamma: float = 0.5
    delta: float = 2.0


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters, in llama.cpp's terms (`llama_sampler_init_*`). The defaults switch everything off.

    Each dialect fills in its own defaults. Settings of the model may replace those (GenerationRequest.given).

    temperature: 0 is greedy. top_k: 0 is off. top_p, typical_p: 1 is off. min_p: 0 is off.
    repeat_last_n: window of the penalties in tokens of prompt and completion; -1 is the whole context.
    infill: `llama_sampler_init_infill`, after the other truncations.
    mirostat_mode: 0 off, 1, 2; replaces top_k, top_p, min_p and typical_p.
    seed: None draws one, which the engine reports. Choice i of a request uses seed + i.
    logit_bias: by token id, a value added to its raw logit.
    watermark: None is off; also applies to greedy sampling.
    pipeline: `llama.cpp` is its sampler chain. `warped` (`engine.sampler`) has
    temperature first, penalties over the whole context with the frequency as a share of it, and log-probabilities of
    the final distribution instead of the raw logits. It has no min_p, presence_penalty, infill or mirostat.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    infill: bool = False
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    seed: int | None = None
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict[int, float])
    watermark: Watermark | None = None
    pipeline: Literal["llama.cpp", "warped"] = "llama.cpp"


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Ends an answer whose last tokens are one pattern, again and again; vLLM's `repetition_detection`.

    max_pattern_size, min_pattern_size: tokens of the pattern; a minimum of 0 is 1. min_count: how often it follows
    itself, at least twice. min_tokens: of all these together. escapes: how often the token that would go on with the
    pattern is forbidden instead, each time once.
    """

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int
    min_tokens: int = 0
    escapes: int = 0


ESCAPES: Final = 3
LoopAction = Literal["off", "end", "escape"]
_LOOP: Final = RepetitionDetection(max_pattern_size=512, min_count=8, min_tokens=2_048)
LOOPS: Final[dict[LoopAction, RepetitionDetection | None]] = {
    "off": None,
    "end": _LOOP,
    "escape": msgspec.structs.replace(_LOOP, escapes=ESCAPES),
}
"""`stop_loops`. The sizes are beyond tables, logs and code: 25 equal lines of 80 tokens, a thousand zeros."""


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """When a sequence ends.

    max_tokens: None is up to the end of the context (or the server's ceiling); 0 computes only the prompt.
    min_tokens: end-of-generation tokens cannot be sampled before this many tokens.
    stop: the earliest occurrence of any of these strings ends the text, which excludes it
    unless include_stop is set.
    stop_at_token_end: match stop strings only at the end of a token, optionally before a line break, and always include
    them in the text, as Text Generation Inference does.
    stop_after_min: match stop strings only after the first min_tokens tokens, as LMDeploy does.
    ignore_eos: mask the logits of end-of-generation tokens.
    repetition_detection: ends a text that repeats itself, after the first min_tokens tokens.
    max_decode_s: seconds after the first token after which a text with a line break ends.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    stop_at_token_end: bool = False
    stop_after_min: bool = False
    ignore_eos: bool = False
    repetition_detection: RepetitionDetection | None = None
    max_decode_s: float | None = None


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
