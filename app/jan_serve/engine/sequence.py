"""A Sequence: one completion, from its prompt to its last token."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from jan_serve.core.events import Timings, TokenInfo
from jan_serve.core.sequence_state import SequenceState
from jan_serve.engine.prefix_mark import PrefixMark
from jan_serve.engine.prompt_media import NO_MEDIA, PromptMedia
from jan_serve.engine.sequence_text import SequenceText
from jan_serve.engine.tokens import TokenBuffer, Tokens
from jan_serve.ipc.messages import EngineRequest

if TYPE_CHECKING:
    # For their types only: the scheduler and its tests load no llama.cpp.
    from jan_serve.engine.constraint.guide import GuidedExecutor
    from jan_serve.engine.sampler import Sampler


class SequenceStatus(enum.Enum):
    """waiting: without cells. running: has a sequence id, prefills or decodes. finished: no longer in the engine."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


class RequestState(msgspec.Struct, eq=False):
    """State shared by the sequences of one request. Times are of a monotonic clock, in seconds.

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
    visible_specials: frozenset[int] = frozenset()

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
    num_cached: how many of them came from the prefix cache at the last admission.
    prefill_end: number of tokens at the last admission; computing them is its prefill.
    guide: the sampler's guide, which counts reasoning tokens.
    max_new: max tokens to generate, bounded by the context and the server's ceiling. fills_context: by the context.
    checkpoints: numbers of tokens at which the prefill saves its state, in ascending order.
    fork: number of tokens at which the prefill stops once, for the other choices of its request; 0: no stop.
    passed: how often a later sequence with a cached prefix was admitted first.
    num_drafted: cells after its own that hold a draft.
    resumed: another server's state of it, until that is restored.
    media: the images and sound of its prompt, whose cells have placeholders among `tokens`.
    mark: separates its prefix from those under other LoRA adapters or salts; None without either.
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
    prefill_end: int = 0
    num_generated: int = 0
    has_line_break: bool = False
    sum_logprob: float = 0.0
    prompt_infos: list[TokenInfo] = msgspec.field(default_factory=list[TokenInfo])
    guide: GuidedExecutor | None = None
    resumed: SequenceState | None = None
    checkpoints: tuple[int, ...] = ()
    fork: int = 0
    num_drafted: int = 0
    passed: int = 0
    mark: PrefixMark | None = None
    media: PromptMedia = NO_MEDIA
    fills_context: bool = False

    @property
    def request(self) -> EngineRequest:
        return self.state.request

    @property
    def client(self) -> str:
        """Whose sequence it is; see `core.caller`."""
        return self.request.client

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
