"""GenerationEvents: what `generation` yields and every dialect renders. Values only.

Order: one Started; then, interleaved over choices, deltas of a choice followed by its one Finished;
then one Completed. Any of them may be replaced by an exception of the `errors` tree, which ends the stream.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A candidate token. `logprob` is of the raw logits (natural log), before any sampler, unless the request's
    `sampling.pipeline` says otherwise. special: a control token. entry: as TokenInfo's."""

    id: int
    piece: bytes
    logprob: float
    special: bool = False
    entry: str = ""


class TokenInfo(msgspec.Struct, frozen=True, array_like=True):
    """One token of a prompt or completion.

    piece: its exact bytes (may be part of a character). special: a control token, absent from the text
    unless the request kept special tokens. logprob: None where it was not asked for, or has no context (the first
    prompt token). top: the most likely candidates, best first; holds the chosen one only if it is among them.
    entry: how the vocabulary spells it (`Ġthe`, `▁the`, `<0x0A>`), empty unless the request wanted entries.
    """

    id: int
    piece: bytes
    special: bool = False
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()
    entry: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a request over all its choices. cached_tokens: prompt tokens that were not computed again."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds a request spent queued, in prefill and in decode."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The engine accepted the request. infilled: the model was given prefix and suffix of an InfillPrompt.

    truncated: parts of an InfillPrompt that may be cut were. warnings: what of the request is held to less than was
    asked, in sentences.
    """

    model: str
    prompt_tokens: int
    infilled: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()


class PromptTokens(msgspec.Struct, frozen=True):
    """The prompt's tokens with log-probabilities, once, before the first delta, when they were asked for."""

    tokens: tuple[TokenInfo, ...]


class TextDelta(msgspec.Struct, frozen=True):
    """More answer text of one choice. Never part of a character; may be empty when it only brings tokens."""

    index: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More text of the model's thought, apart from the answer."""

    index: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A fragment of a tool call. `id` and `name` are set on the first fragment of a call only."""

    index: int
    call_index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one choice.

    stop: the stop string that ended it, if one did. eos: an end-of-generation token ended it.
    mean_logprob: of its tokens, None where log-probabilities were not computed. seed: None when greedy.
    reasoning_tokens: of completion_tokens, those of thoughts. end_token: the end-of-generation token, where tokens were
    asked for and one ended it; it is not counted in completion_tokens.
    """

    index: int
    reason: FinishReason
    completion_tokens: int = 0
    stop: str | None = None
    eos: bool = False
    mean_logprob: float | None = None
    seed: int | None = None
    reasoning_tokens: int = 0
    end_token: TokenInfo | None = None


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """All choices are finished."""

    usage: Usage
    timings: Timings = Timings()


class StatePreserved(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed of the prompt is kept for another server.

    handle: what it is kept under here. tokens: of the prompt. next_token: the one behind them, sampled here.
    """

    handle: int
    tokens: int
    next_token: int


GenerationEvent = (
    Started
    | PromptTokens
    | StatePreserved
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | Finished
    | Completed
)
