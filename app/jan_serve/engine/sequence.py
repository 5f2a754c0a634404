"""A Sequence is one completion, SequenceText its text to send, and a PlanItem what a step computes of it."""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from jan_serve.core.events import CacheTier, EngineWork, Timings, TokenInfo
from jan_serve.core.kv_transfer import SequenceState
from jan_serve.engine.prompt_media import NO_MEDIA, PromptMedia
from jan_serve.engine.repetition import RepetitionDetector
from jan_serve.engine.tokens import PrefixMark, TokenBuffer, Tokens
from jan_serve.ipc.messages import EngineRequest
from jan_serve.text.markers import StopMatch, StopMatcher, TokenEndMatcher
from jan_serve.text.valid_text import Utf8Decoder

if TYPE_CHECKING:
    from jan_serve.engine.constraint.guide import GuidedExecutor
    from jan_serve.engine.sampler import Sampler


class Emission(NamedTuple):
    """Text and tokens to send now, and the stop string that ended the sequence, if one did."""

    text: str
    tokens: tuple[TokenInfo, ...]
    stop: str | None


class SequenceText:
    """The text of one sequence. A token is released together with its first character. After a stop string, tokens that
    start at or after the cut are dropped: the joined tokens equal the text, except for the end of a token that the cut
    divides."""

    def __init__(
        self,
        stops: tuple[str, ...],
        *,
        include_stop: bool,
        keep_tokens: bool,
        at_token_end: bool = False,
        free_tokens: int = 0,
    ) -> None:
        """at_token_end: see StopConditions.stop_at_token_end; no text is held back then.

        free_tokens: number of first tokens that are not searched for stop strings.
        """
        self._decoder = Utf8Decoder()
        self._matcher = StopMatcher(() if at_token_end else stops)
        self._token_ends = TokenEndMatcher(stops) if at_token_end else None
        self._include_stop = include_stop
        self._keep_tokens = keep_tokens
        self._free_tokens = free_tokens
        self._seen = 0
        self._emitted = 0
        self._waiting: deque[tuple[int, TokenInfo]] = deque()

    def push(self, piece: bytes, info: TokenInfo | None) -> Emission:
        """Add one token: its bytes (empty if it has no visible text), and its info if tokens are requested."""
        start = self._seen
        free = self._free_tokens > 0
        if free:
            self._free_tokens -= 1
        text = self._decoder.feed(piece)
        self._seen += len(text)
        if self._keep_tokens and info is not None:
            self._waiting.append((start, info))
        if not text:
            return Emission("", self._release(self._idle_at(start)), None)
        if free:
            self._matcher.skip(text)
            self._emitted += len(text)
            return Emission(text, self._release(self._idle_at(self._seen)), None)
        released, match = self._matcher.feed(text)
        if match is not None:
            return self._end(released, match)
        self._emitted += len(released)
        stop = self._token_ends.feed(released) if self._token_ends is not None else None
        return Emission(released, self._release(self._idle_at(self._seen)), stop)

    def finish(self, *, cut_off: bool = False) -> Emission:
        """Release the text held back, in which a stop string may still complete.

        cut_off: a limit ended the sequence, perhaps inside a character, which is left out; its tokens are not.
        """
        tail = self._decoder.finish(cut_off=cut_off)
        self._seen += len(tail)
        released, match = self._matcher.feed(tail) if tail else ("", None)
        if match is not None:
            return self._end(released, match)
        released += self._matcher.finish()
        self._emitted += len(released)
        tokens = tuple(info for _, info in self._waiting)
        self._waiting.clear()
        return Emission(released, tokens, None)

    def _idle_at(self, position: int) -> bool:
        """Whether all text before `position` is released, so that tokens without text need not wait."""
        return self._emitted == position and not self._decoder.pending

    def _release(self, idle: bool) -> tuple[TokenInfo, ...]:
        out: list[TokenInfo] = []
        while self._waiting and (self._waiting[0][0] < self._emitted or idle):
            out.append(self._waiting.popleft()[1])
        return tuple(out)

    def _end(self, released: str, match: StopMatch) -> Emission:
        if self._include_stop:
            released += match.stop
        cut = match.end if self._include_stop else match.start
        tokens = tuple(info for start, info in self._waiting if start < cut)
        self._waiting.clear()
        return Emission(released, tokens, match.stop)


class SequenceStatus(enum.Enum):
    """waiting: without cells. running: has a sequence id, prefills or decodes. finished: no longer in the engine."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


class RequestState(msgspec.Struct, eq=False):
    """State shared by the sequences of one request. Times are of a monotonic clock, in seconds.

    others_ns: see Waits.
    visible_specials: ids of control tokens whose text stays in the output.
    """

    request: EngineRequest
    prompt_length: int
    arrived: float
    unfinished: int
    completion_tokens: int = 0
    cached_tokens: int | None = None
    started: float | None = None
    first_token: float | None = None
    scored: bool = False
    work: EngineWork = msgspec.field(default_factory=EngineWork)
    others_ns: int = 0
    visible_specials: frozenset[int] = frozenset()

    def shows(self, token: int) -> bool:
        """Whether the text of a control token is part of the answer."""
        return not self.request.skip_special_tokens or token in self.visible_specials

    def timings(self, now: float) -> Timings:
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return Timings(
            queue_s=max(0.0, started - self.arrived),
            prefill_s=max(0.0, first - started),
            decode_s=max(0.0, now - first),
        )


class Sequence(msgspec.Struct, eq=False):
    """One completion.

    tokens: prompt and generated ids. num_computed: how many of them are in the KV cache under `seq_id`.
    num_cached: how many of them came from the prefix cache at the last admission; cached_in: from which of its tiers.
    prefill_end: number of tokens at the last admission; computing them is its prefill.
    guide: the sampler's guide, which counts reasoning tokens.
    repetition: finds the end of a text that repeats itself. escapes: how often it may still be kept from that.
    max_new: max tokens to generate, bounded by the context and the server's ceiling. fills_context: by the context.
    checkpoints: numbers of tokens at which the prefill saves its state, in ascending order.
    fork: number of tokens at which the prefill stops once, for the other choices of its request; 0: no stop.
    passed: how often a later sequence with a cached prefix was admitted first.
    num_drafted: cells after its own that hold a draft.
    resumed: another server's state of it, until that is restored.
    media: the images and sound of its prompt, whose cells have placeholders among `tokens`.
    mark: separates its prefix from those under other LoRA adapters or salts; None without either.
    unsent: tokens whose text was not sent yet, each with the random numbers used up to it.
    sent_before: characters of its next text that an earlier worker sent.
    """

    state: RequestState
    index: int
    tokens: TokenBuffer
    sampler: Sampler
    text: SequenceText
    max_new: int
    seed: int | None
    status: SequenceStatus = SequenceStatus.WAITING
    seq_id: int = -1
    num_computed: int = 0
    num_cached: int = 0
    cached_in: CacheTier | None = None
    prefill_end: int = 0
    num_generated: int = 0
    has_line_break: bool = False
    sum_logprob: float = 0.0
    prompt_infos: list[TokenInfo] = msgspec.field(default_factory=list[TokenInfo])
    guide: GuidedExecutor | None = None
    repetition: RepetitionDetector | None = None
    escapes: int = 0
    resumed: SequenceState | None = None
    checkpoints: tuple[int, ...] = ()
    fork: int = 0
    num_drafted: int = 0
    passed: int = 0
    mark: PrefixMark | None = None
    media: PromptMedia = NO_MEDIA
    fills_context: bool = False
    unsent: list[tuple[int, int]] = msgspec.field(default_factory=list[tuple[int, int]])
    sent_before: int = 0

    @property
    def request(self) -> EngineRequest:
        return self.state.request

    @property
    def client(self) -> str:
        """The client whose sequence it is; see `core.caller`."""
        return self.request.client

    @property
    def background(self) -> bool:
        """Whether it waits for all that are not."""
        return self.request.background

    def prefix(self, end: int | None = None) -> Tokens:
        """Its first `end` tokens (default: all), marked for prefix comparison. A view if there is no mark."""
        tokens = self.tokens.view(0, end)
        return tokens if self.mark is None else self.mark.apply(tokens)

    @property
    def num_uncomputed(self) -> int:
        """Tokens not in the KV cache yet. While decoding: the newest one and those forced after it by a grammar."""
        return len(self.tokens) - self.num_computed

    @property
    def next_stops(self) -> list[int]:
        """Numbers of tokens at which its prefill will stop before its end."""
        return [stop for stop in {*self.checkpoints, self.fork} if stop > self.num_computed]

    @property
    def num_prefill(self) -> int:
        """Tokens of its prefill that one batch may take: up to its end, the next stop, or the border of an image."""
        border = self.media.next_border(self.num_computed)
        stops = self.next_stops if border is None else [*self.next_stops, border]
        return min([*stops, self.prefill_end]) - self.num_computed

    def position(self, length: int) -> int:
        """llama.cpp's position after its first `length` tokens and cells."""
        return self.media.position(length)

    @property
    def is_prefilling(self) -> bool:
        """Whether tokens of its last admission are missing from the KV cache."""
        return self.num_computed < self.prefill_end

    @property
    def waits_for_scores(self) -> bool:
        """Whether it waits for the first sequence of its request to score the prompt: scores precede any text."""
        return self.index > 0 and self.request.prompt_logprobs is not None and not self.state.scored

    @property
    def wants_prompt_scores(self) -> bool:
        """Whether it still needs logits of prompt positions. Only the first sequence of a request does."""
        return self.index == 0 and self.request.prompt_logprobs is not None and not self.state.scored


class Draft(msgspec.Struct, frozen=True):
    """Tokens to compute after the newest one. The first `guessed` are expected, the others only fill the step.

    match_length: of the look-up; None: the draft model guessed.
    """

    tokens: Tokens
    guessed: int
    match_length: int | None = None


class PlanItem(msgspec.Struct, frozen=True):
    """`count` tokens of a sequence, from its first uncomputed one, for the next batch.

    draft: to compute after them. Only after a single newest token.
    """

    sequence: Sequence
    count: int
    outputs: Literal["none", "last", "all"]
    draft: Draft | None = None

    @property
    def size(self) -> int:
        return self.count if self.draft is None else self.count + len(self.draft.tokens)

    @property
    def is_media(self) -> bool:
        """Whether it computes cells of an image or a sound. Before the batch is committed."""
        return self.sequence.media.chunk_at(self.sequence.num_computed) is not None

    @property
    def is_decode(self) -> bool:
        return not self.sequence.is_prefilling
