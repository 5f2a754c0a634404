"""Decides which waiting sequence runs next and what the next batch holds. Pure: it changes nothing but its own lists.

First come, first served, with two exceptions: a sequence whose prompt begins with what another one is prefilling right
now waits for it, and lets others pass, rather than computing the same prefix again; and one that has much of its prompt
in the cache may pass a few others. A batch never mixes LoRA adapters.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from jan_serve.engine.cache.cells import CellCounter
from jan_serve.engine.cache.prefix_cache import PrefixCache, PrefixMatch
from jan_serve.engine.scheduling.adapter_turns import AdapterTurns
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens, common_prefix
from jan_serve.ipc.messages import AdapterUse

# Waiting for another's prefill costs at least one step; a shorter prefix than this is cheaper to compute again.
MIN_SHARED_PREFILL = 16
# Rows of logits are n_vocab floats each: scored prompts go in small pieces.
SCORED_CHUNK = 64


# A sequence may be passed by one of the next few that has so many more tokens in the cache, and only so often.
_WINDOW = 4
_PREFERRED_TOKENS = 128
_MAX_PASSED = 4


@dataclass(frozen=True, slots=True)
class Admission:
    """A waiting sequence that may run now, and where its prefix comes from.

    num_cached: tokens that need not be computed, also those of a saved state.
    """

    sequence: Sequence
    prefix: PrefixMatch | None
    num_cached: int = 0


@dataclass(frozen=True, slots=True)
class PlanItem:
    """`count` tokens of a sequence, from its first uncomputed one, for the next batch.

    draft: a guess about the tokens behind them, to compute as well. Only behind a single newest token.
    """

    sequence: Sequence
    count: int
    outputs: Literal["none", "last", "all"]
    draft: Tokens | None = None

    @property
    def size(self) -> int:
        """Tokens in the batch."""
        return self.count if self.draft is None else self.count + len(self.draft)

    @property
    def is_decode(self) -> bool:
        """Whether these are new tokens of a running stream."""
        return not self.sequence.is_prefilling


class Scheduler:
    """The waiting and the running sequences of one context.

    share_prefill: wait for a prefix that another sequence is prefilling. prefer_cached: let a cached one pass a few.
    """

    def __init__(
        self,
        parallel: int,
        cells: CellCounter,
        cache: PrefixCache,
        *,
        share_prefill: bool = True,
        prefer_cached: bool = True,
    ) -> None:
        self.parallel = parallel
        self._share_prefill = share_prefill
        self._prefer_cached = prefer_cached
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._cells = cells
        self._cache = cache
        self._turns: AdapterTurns[tuple[AdapterUse, ...]] = AdapterTurns()
        self.passed_total = 0  # times that a cached prefix was preferred

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def next_admission(
        self,
        is_fetching: Callable[[Sequence, int], bool] = lambda _sequence, _have: False,
        num_fetched: Callable[[Sequence], int] = lambda _sequence: 0,
    ) -> Admission | None:
        """The next waiting sequence that may run, if there is room. The caller moves it to `running` and asks again.

        is_fetching: whether more of a sequence than so many tokens is on its way, so that it should wait.
        num_fetched: how many tokens of it are there to be brought back.
        """
        if len(self.running) >= self.parallel:
            return None
        ready = self._ready(is_fetching, num_fetched)
        first = next(ready, None)
        if first is None:
            return None
        chosen = first
        if self._prefer_cached:
            chosen = self._preferred(first, itertools.islice(ready, _WINDOW - 1))
        prefix = chosen.prefix
        have = prefix.length if prefix is not None else 0
        if not self._has_room(len(chosen.sequence.tokens) - have, prefix):
            return None
        if chosen is not first:
            first.sequence.passed += 1
            self.passed_total += 1
        return chosen

    def _ready(
        self, is_fetching: Callable[[Sequence, int], bool], num_fetched: Callable[[Sequence], int]
    ) -> Iterator[Admission]:
        """The waiting sequences that need not wait for a prefix, in order."""
        for sequence in self.waiting:
            if sequence.waits_for_scores:
                continue
            prefix = self._find_prefix(sequence)
            have = prefix.length if prefix is not None else 0
            if self._being_prefilled(sequence) < have + MIN_SHARED_PREFILL and not is_fetching(
                sequence, have
            ):
                yield Admission(sequence, prefix, max(have, num_fetched(sequence)))

    @staticmethod
    def _preferred(first: Admission, others: Iterable[Admission]) -> Admission:
        """The first one, unless a near one has much more of its prompt in the cache, which may be evicted soon."""
        if first.sequence.passed >= _MAX_PASSED:
            return first
        least = first.num_cached + _PREFERRED_TOKENS
        return next((other for other in others if other.num_cached >= least), first)

    def next_turn(self, now: float) -> list[Sequence]:
        """The running sequences of the next batch: all, or, where several sets of LoRA adapters run, those of one."""
        adapters = list(dict.fromkeys(sequence.request.adapters for sequence in self.running))
        if not adapters:
            return self.running
        turn = self._turns.take(adapters, now)
        return [sequence for sequence in self.running if sequence.request.adapters == turn]

    def plan(self, max_tokens: int, max_prefill: int, turn: list[Sequence] | None = None) -> list[PlanItem]:
        """The next batch: the new tokens of every decoding sequence, then prefill in order of admission.

        max_tokens bounds the batch, max_prefill the prefill in it. turn: the sequences to take, by default all.
        """
        turn = self.running if turn is None else turn
        items: list[PlanItem] = []
        room = max_tokens
        for sequence in turn:
            if not sequence.is_prefilling and room > 0:
                count = min(sequence.num_uncomputed, room)
                items.append(
                    PlanItem(sequence, count, "last" if count == sequence.num_uncomputed else "none")
                )
                room -= count
        room = min(max_prefill, room)
        for sequence in turn:
            if room <= 0:
                break
            if not sequence.is_prefilling:
                continue
            count = min(sequence.num_prefill, room)
            if sequence.wants_prompt_scores:
                count = min(count, SCORED_CHUNK)
                items.append(PlanItem(sequence, count, "all"))
            else:
                items.append(
                    PlanItem(sequence, count, "last" if count == sequence.num_uncomputed else "none")
                )
            room -= count
        return items

    def victim(self) -> Sequence | None:
        """The running sequence to preempt when cells run out: the one admitted last, never the only one."""
        return self.running[-1] if len(self.running) > 1 else None

    def _find_prefix(self, sequence: Sequence) -> PrefixMatch | None:
        if sequence.wants_prompt_scores:
            return None
        running = [(s.seq_id, s.prefix(s.num_computed)) for s in self.running]
        return self._cache.match(sequence.prefix(), running)

    def _being_prefilled(self, sequence: Sequence) -> int:
        """The longest prefix that a running sequence will have computed, and can share, during its prefill."""
        if not self._share_prefill or sequence.wants_prompt_scores:
            return 0
        prompt = sequence.prefix(len(sequence.tokens) - 1)
        return max((self._shared_later(prompt, s) for s in self.running if s.is_prefilling), default=0)

    def _shared_later(self, prompt: Tokens, other: Sequence) -> int:
        common = common_prefix(prompt, other.prefix())
        if not self._cache.whole_only:
            return common
        # What cannot be cut can be shared where its prefill stops.
        return max((stop for stop in other.next_stops if stop <= common), default=0)

    def _has_room(self, needed: int, prefix: PrefixMatch | None) -> bool:
        """Whether `needed` cells are free or can be evicted, beyond what running prefills will take."""
        kept = [s.seq_id for s in self.running]
        promised = sum(s.num_uncomputed for s in self.running)
        shared = 0
        if prefix is not None and prefix.seq_id in self._cache:
            # The shared part stays when its cached sequence goes.
            shared = prefix.length
        return needed + shared + promised <= self._cells.capacity - self._cells.held_by(kept)
