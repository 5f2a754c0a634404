"""The Scheduler decides which waiting sequence runs next and what the next batch contains.

No clock, no I/O, no llama.cpp: it changes only its own lists and `Sequence.passed`.

The client with the fewest running sequences is next, of its requests the one with the fewest, else the first that
came. A client or a request that runs at least two more than the next one makes way for it: one of its sequences
waits again, and what it computed stays in the cache.

Two exceptions: a sequence that shares a prefix with a running prefill waits for that prefill instead of computing
the prefix again, and lets others pass; and a sequence with much of its prompt in the cache may pass a few others. A
batch never mixes LoRA adapters: sets of them take turns. A set keeps its turn for a time slice, because a change
makes llama.cpp reserve its graph again (7 ms for a model of 7 layers, 15 ms for one of 24).

Sequences in the background run while no other one can. They make way for any other that needs their room.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Sequence as Items
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache, PrefixMatch
from jan_serve.engine.sequence import PlanItem, Sequence
from jan_serve.engine.tokens import Tokens, common_prefix
from jan_serve.ipc.messages import AdapterUse

K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.1


class AdapterSlices(Generic[K]):
    """No set waits longer than a slice and a step of each other set."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._current: K | None = None
        self._since = 0.0
        self._served: dict[K, float] = {}

    def take(self, running: Items[K], now: float) -> K:
        """The set of the next step; new sets come first. running: not empty. now: of any monotonic clock."""
        if self._current not in running or now - self._since >= self._slice_s:
            self._current = min(running, key=lambda key: self._served.get(key, float("-inf")))
            self._since = now
        assert self._current is not None
        kept = {key: self._served[key] for key in running if key in self._served}
        self._served = kept | {self._current: now}
        return self._current


# Waiting for another prefill costs at least one step: a shorter prefix is cheaper to compute again.
MIN_SHARED_PREFILL = 16
# A row of logits has n_vocab floats, so scored prompts run in small chunks.
SCORED_CHUNK = 64

# One of the next _WINDOW sequences passes the first if it has _PREFERRED_TOKENS more in the cache; at most _MAX_PASSED
# times.
_WINDOW = 4
_PREFERRED_TOKENS = 128
_MAX_PASSED = 4


class Admission(msgspec.Struct, frozen=True):
    """A waiting sequence that may run now, and the source of its prefix.

    num_cached: tokens that need no computation, including those of a saved state.
    """

    sequence: Sequence
    prefix: PrefixMatch | None
    num_cached: int = 0


class _Shares(NamedTuple):
    """Running sequences by client and by the state of their request."""

    clients: Counter[str]
    requests: Counter[int]

    def of(self, sequence: Sequence) -> tuple[int, int]:
        return self.clients[sequence.client], self.requests[id(sequence.state)]


class Scheduler:
    """The waiting and the running sequences of one context. share_prefill: wait for a prefix that another sequence
    prefills. prefer_cached: let cached prompts pass others. reaches_back: see LlamaContext. is_fetching, num_fetched:
    see StateRestorer."""

    def __init__(
        self,
        parallel: int,
        cells: CellCounter,
        cache: PrefixCache,
        *,
        share_prefill: bool = True,
        prefer_cached: bool = True,
        reaches_back: Callable[[int, int], bool] = lambda _seq_id, _position: True,
        is_fetching: Callable[[Sequence, int], bool] = lambda _sequence, _num_cached: False,
        num_fetched: Callable[[Sequence], int] = lambda _sequence: 0,
    ) -> None:
        self.parallel = parallel
        self._reaches_back = reaches_back
        self._is_fetching, self._num_fetched = is_fetching, num_fetched
        self._share_prefill = share_prefill
        self._prefer_cached = prefer_cached
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._cells = cells
        self._cache = cache
        self._turns: AdapterSlices[tuple[AdapterUse, ...]] = AdapterSlices()
        self.passed_total = 0  # times that a cached prompt passed another

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def next_admission(self) -> Admission | None:
        """The next waiting sequence that may run, if there is room. The caller moves it to `running` and calls again.
        One that passes the first must fit; else the first is next."""
        if len(self.running) >= self.parallel:
            return None
        ready = self._ready()
        first = next(ready, None)
        if first is None:
            return None
        chosen = first
        if self._prefer_cached:
            shares = self._shares()
            share = shares.of(first.sequence)
            equals = itertools.takewhile(lambda other: shares.of(other.sequence) == share, ready)
            chosen = self._preferred(first, itertools.islice(equals, _WINDOW - 1))
        if chosen is not first and not self._has_room(chosen):
            chosen = first
        if chosen is first and not self._has_room(first):
            return None
        if chosen is not first:
            first.sequence.passed += 1
            self.passed_total += 1
        return chosen

    def _ready(self) -> Iterator[Admission]:
        """The waiting sequences that need not wait for scores, a prefill or a fetch, in order. Those in the background
        also wait for all others that run."""
        is_busy = not all(sequence.background for sequence in self.running)
        shared: set[int] = set()  # states of requests whose new sequences wait for the same prefill
        shares = self._shares()
        # Those of the clients, then of the requests, that run the fewest come first; those in the background last.
        turns = sorted(self.waiting, key=lambda each: (each.background, *shares.of(each)))
        for sequence in turns:
            is_new = sequence.num_generated == 0
            if sequence.waits_for_scores or (is_new and id(sequence.state) in shared):
                continue
            if sequence.background and is_busy:
                return
            prefix = self._find_prefix(sequence)
            num_cached = prefix.length if prefix is not None else 0
            waits = self._being_prefilled(sequence) >= num_cached + MIN_SHARED_PREFILL
            if not waits and not self._is_fetching(sequence, num_cached):
                yield Admission(sequence, prefix, max(num_cached, self._num_fetched(sequence)))
            elif is_new:
                shared.add(id(sequence.state))

    def _shares(self) -> _Shares:
        return _Shares(
            Counter(sequence.client for sequence in self.running),
            Counter(id(sequence.state) for sequence in self.running),
        )

    def next_pause(self) -> Sequence | None:
        """The running sequence to pause for the next waiting one, if that may run in its place; else None. One in the
        background makes way for any other, together with further ones if need be. For the caller after `next_admission`
        had no more. Shares differ by two at least, so that no two sequences take turns at making way for each other."""
        if not self.waiting:
            return None
        shares = self._shares()
        yielding = next((sequence for sequence in reversed(self.running) if sequence.background), None)
        if yielding is None and self._larger_share(shares, min(self.waiting, key=shares.of)) is None:
            return None
        first = next(self._ready(), None)
        if first is None:
            return None
        if yielding is not None and not first.sequence.background:
            return yielding
        paused = self._larger_share(shares, first.sequence)
        return paused if paused is not None and self._has_room(first, paused) else None

    def _larger_share(self, shares: _Shares, waiting: Sequence) -> Sequence | None:
        """The latest of the running sequences of the largest share, if that is too large beside a waiting one."""
        largest = self._of_largest_share(shares)
        if largest is None:
            return None
        clients, requests = shares.of(waiting)
        if largest.client != waiting.client:
            return largest if shares.of(largest)[0] >= clients + 2 else None
        return largest if shares.of(largest)[1] >= requests + 2 else None

    def _of_largest_share(self, shares: _Shares) -> Sequence | None:
        """The latest running sequence of the client, and of its requests the one, that run the most. Those in the
        background come first."""
        return max(
            reversed(self.running),
            key=lambda sequence: (sequence.background, *shares.of(sequence)),
            default=None,
        )

    @staticmethod
    def _preferred(first: Admission, others: Iterable[Admission]) -> Admission:
        """The first one, unless a near one has much more of its prompt in the cache, where it may be evicted soon."""
        if first.sequence.passed >= _MAX_PASSED:
            return first
        min_cached = first.num_cached + _PREFERRED_TOKENS
        return next((other for other in others if other.num_cached >= min_cached), first)

    def next_turn(self, now: float, ready: list[Sequence] | None = None) -> list[Sequence]:
        """The sequences of the next batch: all, or those of one set of LoRA adapters if several run.

        ready: the running ones that can compute something; None: all.
        """
        ready = self.running if ready is None else ready
        ready = [sequence for sequence in ready if not sequence.background] or ready
        adapters = list(dict.fromkeys(sequence.request.adapters for sequence in ready))
        if not adapters:
            return ready
        turn = self._turns.take(adapters, now)
        return [sequence for sequence in ready if sequence.request.adapters == turn]

    @staticmethod
    def plan(
        max_tokens: int, max_prefill: int, streams: Iterable[Sequence], reads: Iterable[tuple[Sequence, int]]
    ) -> list[PlanItem]:
        """The next batch: the new tokens of these streams, then at most so many tokens of each prompt, in this order.

        max_tokens: of the batch. max_prefill: of all prompts in it.
        """
        items: list[PlanItem] = []
        room = max_tokens
        for sequence in streams:
            if room <= 0:
                break
            count = min(sequence.num_uncomputed, room)
            items.append(PlanItem(sequence, count, "last" if count == sequence.num_uncomputed else "none"))
            room -= count
        room = min(max_prefill, room)
        for sequence, max_count in reads:
            if room <= 0:
                break
            count = sequence.num_prefill
            chunk = sequence.media.chunk_at(sequence.num_computed)
            if chunk is None or not chunk.is_whole:
                count = min(count, max_count, room)
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
        """The running sequence to preempt if cells run out: the latest of the largest share, never the only one."""
        return self._of_largest_share(self._shares()) if len(self.running) > 1 else None

    def _find_prefix(self, sequence: Sequence) -> PrefixMatch | None:
        if sequence.wants_prompt_scores:
            return None
        running = [(s.seq_id, s.prefix(s.num_computed)) for s in self.running]
        return self._cache.match(
            sequence.prefix(),
            running,
            sequence.media.cut,
            lambda seq_id, length: self._can_share(seq_id, sequence, length),
        )

    def _being_prefilled(self, sequence: Sequence) -> int:
        """The longest prefix that running prefills will compute and can share."""
        if not self._share_prefill or sequence.wants_prompt_scores:
            return 0
        prompt = sequence.prefix(len(sequence.tokens) - 1)
        longest = 0
        for other in self.running:
            if other.background and not sequence.background:
                continue  # it is not computed while this one waits beside others
            length = sequence.media.cut(self._shared_later(prompt, other)) if other.is_prefilling else 0
            if length > longest and (
                length > other.num_computed or self._can_share(other.seq_id, sequence, length)
            ):
                longest = length
        return longest

    def _can_share(self, seq_id: int, sequence: Sequence, length: int) -> bool:
        return self._reaches_back(seq_id, sequence.position(length))

    def _shared_later(self, prompt: Tokens, other: Sequence) -> int:
        common = common_prefix(prompt, other.prefix())
        if not self._cache.whole_only:
            return common
        # A recurrent state can be shared only where its prefill stops.
        return max((stop for stop in other.next_stops if stop <= common), default=0)

    def _has_room(self, admission: Admission, paused: Sequence | None = None) -> bool:
        """Whether the cells it needs are free or evictable beyond the needs of running prefills.

        paused: a running sequence that makes way.
        """
        running = [sequence for sequence in self.running if sequence is not paused]
        prefix, needed = admission.prefix, len(admission.sequence.tokens)
        if prefix is not None and prefix.seq_id not in self._cache:
            # A running sequence holds the shared part. That of a cached one stays when it is evicted.
            needed -= prefix.length
        running_ids = [s.seq_id for s in running]
        reserved = sum(s.num_uncomputed for s in running)
        return needed + reserved <= self._cells.capacity - self._cells.held_by(running_ids)
