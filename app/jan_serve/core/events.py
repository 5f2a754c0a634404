"""Events that `generation` yields and dialects render.

Order: one Started; then, interleaved over choices, deltas of a choice and its one Finished; then one Completed.
An exception of the `errors` tree may end the stream at any point.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A candidate token. logprob: natural log, from the raw logits, unless `sampling.pipeline` is `warped`.

    special, entry: as in TokenInfo.
    """

    id: int
    piece: bytes
    logprob: float
    special: bool = False
    entry: str = ""


class TokenInfo(msgspec.Struct, frozen=True, array_like=True):
    """One token of a prompt or completion.

    piece: its exact bytes (may be part of a character). special: a control token, absent from the text
    unless the request keeps special tokens. logprob: None if not requested, or without context (the first
    prompt token). top: the most likely candidates, best first; includes the chosen one only if it ranks among them.
    entry: its spelling in the vocabulary (`Ġthe`, `▁the`, `<0x0A>`); empty unless requested.
    """

    id: int
    piece: bytes
    special: bool = False
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()
    entry: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts over all choices of a request. cached_tokens: prompt tokens reused from the cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds spent queued, in prefill and in decode."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def longer(self, other: Timings) -> Timings:
        """The longer time of each kind, of two that passed side by side."""
        return Timings(
            **{name: max(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        )


CacheTier = Literal["cells", "ram", "disk", "server"]


class EngineWork(msgspec.Struct, kw_only=True):
    """How the engine made an answer, over all choices.

    cached_in: where the cached tokens of the prompt were: in cells of the KV cache, as a saved state in RAM or on disk,
    or at another server; None: nowhere. drafted, accepted: tokens that were guessed, and those of them that were right.
    forced: tokens that a grammar left no choice for. others_s: steps that computed something of other requests and kept
    this one waiting.
    """

    cached_in: CacheTier | None = None
    drafted: int = 0
    accepted: int = 0
    forced: int = 0
    others_s: float = 0.0

    def add(self, other: EngineWork) -> None:
        """Count the work for another prompt of the same request."""
        self.cached_in = self.cached_in or other.cached_in
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.forced += other.forced
        self.others_s = max(self.others_s, other.others_s)


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The engine accepted the request.

    prompt: its index in the call. infilled: the model received prefix and suffix of an InfillPrompt. truncated:
    an InfillPrompt was cut. warnings: sentences about parts of the request that are left out or only partly enforced.
    """

    model: str
    prompt_tokens: int
    prompt: int = 0
    infilled: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a request is, if requested: after each step that reads its prompt, and before each piece of a choice.

    prompt: its index in the call. read_tokens: of the prompt, cached ones included; None: all are read. usage, timings:
    so far; the completion tokens are those of the choice.
    """

    usage: Usage
    timings: Timings
    read_tokens: int | None = None
    prompt: int = 0


class PromptTokens(msgspec.Struct, frozen=True):
    """The prompt's tokens with log-probabilities, if requested: once, before the first delta.

    prompt: its index in the call.
    """

    tokens: tuple[TokenInfo, ...]
    prompt: int = 0


class TextDelta(msgspec.Struct, frozen=True):
    """Answer text of one choice, in whole characters; may be empty if it only carries tokens."""

    index: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Reasoning text of one choice."""

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

    stop: the stop string that ended it, if any. eos: an end-of-generation token ended it.
    mean_logprob: of its tokens; None if log-probabilities were not computed. seed: None when greedy.
    reasoning_tokens: part of completion_tokens. end_token: the end-of-generation token that ended it, if tokens were
    requested; not counted in completion_tokens. context_full: the reason `length` is the end of the context.
    repetition: it is that the text repeats itself.
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
    context_full: bool = False
    repetition: bool = False


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    usage: Usage
    timings: Timings = Timings()
    work: EngineWork = msgspec.field(default_factory=EngineWork)


class StatePreserved(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the prompt is kept for another server.

    handle: its id on this server. tokens: length of the prompt. next_token: the first sampled token.
    """

    handle: int
    tokens: int
    next_token: int


GenerationEvent = (
    Started
    | PromptTokens
    | Progress
    | StatePreserved
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | Finished
    | Completed
)
