"""A Sequence: one running completion, from its prompt to its last token."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jan_serve.core.events import Timings, TokenInfo
from jan_serve.core.sequence_state import SequenceState
from jan_serve.engine.cache.prefix_mark import PrefixMark
from jan_serve.engine.sequence_text import SequenceText
from jan_serve.engine.tokens import TokenBuffer, Tokens
from jan_serve.ipc.messages import EngineRequest

if TYPE_CHECKING:
    # Held, never called here: the scheduler's tests load no llama.cpp.
    from jan_serve.engine.constraint.guide import GuidedExecutor
    from jan_serve.engine.sampler import Sampler


class Status(enum.Enum):
    """waiting: has no cells. running: has a sequence id and is prefilled or decoded. finished: gone from the engine."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


@dataclass(slots=True, eq=False)
class RequestState:
    """What the sequences of one request share. Times are of a monotonic clock, in seconds.

    visible_specials: ids of control tokens whose text is kept.
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
        """Where the time went, for the final event."""
        started = self.started if self.started is not None else now
        first = self.first_token if self.first_token is not None else now
        return Timings(
            queue_s=max(0.0, started - self.arrived),
            prefill_s=max(0.0, first - started),
            decode_s=max(0.0, now - first),
        )


@dataclass(slots=True, eq=False)
class Sequence:
    """One completion.

    tokens: prompt and generated ids. num_computed: how many of them are in the KV cache under `seq_id`.
    num_cached: how many of them came from the prefix cache at the (last) admission.
    prefill_end: tokens it had at the (last) admission; computing them is its prefill.
    guide: what `sampler` follows, where that counts thoughts.
    max_new: tokens it may still generate in all, bounded by the context and the server's ceiling.
    checkpoints: numbers of tokens at which its state is kept during the prefill, in ascending order.
    fork: number of tokens at which its prefill stops once, for the other choices of its request; 0 where it does not.
    passed: how often one that came later was admitted before it for its cached prefix.
    num_drafted: cells behind its own that hold a draft.
    resumed: what another server computed of it, until it has been put in place.
    mark: keeps its prefix apart from those under other LoRA adapters or salts; None where neither applies.
    """

    state: RequestState
    index: int
    tokens: TokenBuffer
    sampler: Sampler
    text: SequenceText
    max_new: int
    seed: int | None
    status: Status = Status.WAITING
    seq_id: int = -1
    num_computed: int = 0
    num_cached: int = 0
    prefill_end: int = 0
    num_generated: int = 0
    has_line_break: bool = False
    sum_logprob: float = 0.0
    prompt_infos: list[TokenInfo] = field(default_factory=list[TokenInfo])
    guide: GuidedExecutor | None = None
    resumed: SequenceState | None = None
    checkpoints: tuple[int, ...] = ()
    fork: int = 0
    num_drafted: int = 0
    passed: int = 0
    mark: PrefixMark | None = None

    @property
    def request(self) -> EngineRequest:
        """The request that this sequence belongs to."""
        return self.state.request

    def prefix(self, end: int | None = None) -> Tokens:
        """Its first `end` tokens (default: all) as prefixes are compared; without adapters a view."""
        tokens = self.tokens.view(0, end)
        return tokens if self.mark is None else self.mark.apply(tokens)

    @property
    def num_uncomputed(self) -> int:
        """Tokens not in the KV cache yet. While decoding: the newest one and what a grammar forced after it."""
        return len(self.tokens) - self.num_computed

    @property
    def next_stops(self) -> list[int]:
        """Numbers of tokens at which its prefill will stop, before its end."""
        return [stop for stop in {*self.checkpoints, self.fork} if stop > self.num_computed]

    @property
    def num_prefill(self) -> int:
        """Tokens that one batch may take of its prefill: up to its end, or to the next stop."""
        return min([*self.next_stops, self.prefill_end]) - self.num_computed

    @property
    def is_prefilling(self) -> bool:
        """Whether tokens that it was admitted with are still missing from the KV cache."""
        return self.num_computed < self.prefill_end

    @property
    def waits_for_scores(self) -> bool:
        """Whether the first sequence of its request has yet to score the prompt, which is told before any text."""
        return self.index > 0 and self.request.prompt_logprobs is not None and not self.state.scored

    @property
    def wants_prompt_scores(self) -> bool:
        """Whether logits of prompt positions are still needed (by the first sequence of the request only)."""
        return self.index == 0 and self.request.prompt_logprobs is not None and not self.state.scored
