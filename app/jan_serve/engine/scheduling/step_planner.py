"""The StepPlanner decides what the next step computes: a chunk of prompts, the next token of each stream, or both.

A token of a stream waits for the whole step, so streams pause while prompts are read, and then run until they have
had their share. A step has rows of both kinds where that saves time and makes no step of the streams twice as long.
docs/adr/0035-streams-and-prompts-take-turns.md explains the choice. `cohort_size` decides which of the waiting
prompts end together, so that their streams decode in the same steps. Times are in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import isclose
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from jan_serve.engine.scheduling.step_costs import PART, TILE, Curve, StepCosts

LARGEST_GROUP: Final = 32
"""Prompts of a cohort: the last token of each must fit in the smallest part that is read."""
_SIZES: Final = (1, 4, 8)
"""Compared with all prompts. CPU kernels multiply four rows together: four streams cost about as much as three."""
_NEAR: Final = 1.03  # sums within this factor are equal: noise in the learnt costs would decide between them
_ASSUMED_TOKENS: Final = 256  # tokens of an answer without a nearer limit


class Reading(NamedTuple):
    """A prompt: how long it takes to read, and the most tokens of its answer."""

    reading_s: float
    tokens: float


def cohort_size(items: Sequence[Reading], decode_s: Callable[[int], float]) -> int:
    """How many of these prompts, in this order, end together. decode_s: of a step of so many streams.

    Small cohorts give the first clients their answers soon, large ones decode more streams in a step. The choice has
    the least sum of four times: mean and last first token, mean and last end. All four scale with the machine, so its
    speed decides nothing. Of equal sums, the choice whose last answer ends first is taken: it computes least."""
    sizes = sorted({min(LARGEST_GROUP, len(items)), *(size for size in _SIZES if size < len(items))})
    times = [_times(items, size, decode_s) for size in sizes]
    least_s = min(sum_s for sum_s, _ in times)
    ends_s = {
        size: end_s for size, (sum_s, end_s) in zip(sizes, times, strict=True) if sum_s <= _NEAR * least_s
    }
    soonest_s = min(ends_s.values())
    return next(size for size, end_s in ends_s.items() if isclose(end_s, soonest_s))


def _times(items: Sequence[Reading], size: int, decode_s: Callable[[int], float]) -> tuple[float, float]:
    """The sum of times and the last end, with cohorts of `size` that are read and decoded one after the other."""
    firsts_s = ends_s = first_s = end_s = 0.0
    for start in range(0, len(items), size):
        cohort = items[start : start + size]
        first_s = end_s + sum(item.reading_s for item in cohort)
        end_s = first_s + decode_s(len(cohort)) * max(min(item.tokens, _ASSUMED_TOKENS) for item in cohort)
        firsts_s += len(cohort) * first_s
        ends_s += len(cohort) * end_s
    return (firsts_s + ends_s) / len(items) + first_s + end_s, end_s


PAUSE_S: Final = 1.4
"""The longest pause of streams, if a part takes no longer. With what a prediction lacks, below 1.5 s."""
SOON_S: Final = 0.5
"""A step without streams just after an arrival, or while another model waits for the cores."""
ALONE_S: Final = 2.0  # the longest step without streams: new requests soon get their turn
BACKGROUND_S: Final = 0.1
"""The longest step without streams that others would have to wait for, in the background."""
RUN_STEPS: Final = 30
"""Steps of the streams that a pause is earned by, at most: fewer than 5 % of the times between tokens are pauses."""
MAX_SHARE: Final = 0.7  # share of the time for streams beside prompts, however many they are
JOIN_S: Final = 12.0
"""How long streams wait for prompts that arrived before they began, with a token after each pause."""
MAX_WAIT: Final = 2.0  # how much longer a prompt may wait than in order of arrival
FIRST_TOKENS: Final = 512  # tokens of a step without streams while no cost is known


class _Times(Protocol):
    arrived: float
    first_token: float | None


class Planned(Protocol):
    """What the planner reads of a `Sequence`; requests of a simulation have it too."""

    num_cached: int
    prefill_end: int
    max_new: int
    num_generated: int

    @property
    def client(self) -> str: ...

    @property
    def state(self) -> _Times: ...

    @property
    def is_prefilling(self) -> bool: ...

    @property
    def num_uncomputed(self) -> int: ...


S = TypeVar("S", bound=Planned)


class StepPlan(msgspec.Struct, Generic[S], frozen=True):
    """The streams of a step, the prompts in its order with the most tokens of each, and the most tokens of all."""

    streams: list[S]
    reads: list[tuple[S, int]] = msgspec.field(default_factory=list[tuple[S, int]])
    max_prefill: int = 0


class Balance(msgspec.Struct, frozen=True):
    """paused_s: length of the streams' latest pause; ran_s: time that they have had since."""

    paused_s: float = 0.0
    ran_s: float = 0.0

    @property
    def is_pause(self) -> bool:
        return self.paused_s > 0.0 and not self.ran_s

    def after(self, num_streams: int, decode_s: float, prefill_s: float) -> Balance:
        """The balance after a step of these times beside this number of streams."""
        if not num_streams:
            return Balance()
        if not prefill_s:
            return Balance(self.paused_s, self.ran_s + decode_s)
        if self.ran_s:
            return Balance(prefill_s, decode_s)
        return Balance(self.paused_s + prefill_s, decode_s)


class _Cohort(msgspec.Struct, Generic[S], frozen=True):
    """members: prompts that end together. among: all that they were chosen from.

    joins: streams that have just begun wait for it, with a token after each pause.
    """

    members: list[S]
    among: list[S]
    size: int
    joins: bool = False


class StepPlanner(Generic[S]):
    """`plan` before each step, `observe` after it. A step reads prompts of one client: clients take turns.

    pauses_total: of streams while prompts were read. mixed_total: steps that computed both.
    """

    def __init__(self, chunk: int, stream_share: float | None = None) -> None:
        """chunk: max tokens of a step. stream_share: share of the time that streams keep beside prompts. None:
        proportional to the numbers of streams and prompts, of each client."""
        self.costs = StepCosts()
        self.pauses_total = self.mixed_total = 0
        self._balance = Balance()
        self._chunk = chunk
        self._stream_share = stream_share
        self._cohorts: dict[str, _Cohort[S]] = {}  # the cohort of each client that has prompts
        self._last_read: dict[str, int] = {}
        self._num_reads = 0
        self._num_streams = 0

    def plan(self, turn: Iterable[S], *, now: float, most_s: float = ALONE_S) -> StepPlan[S]:
        """The next step of these running sequences. most_s: of a step without streams."""
        streams: list[S] = []
        prompts: list[S] = []
        for sequence in turn:
            (prompts if sequence.is_prefilling else streams).append(sequence)
        self._num_streams = len(streams)
        if not prompts:
            return StepPlan(streams)
        share = self._stream_share or min(MAX_SHARE, _share_by_count(streams, prompts))
        client, prompts = self._next_client(prompts)
        prompts = reading_order(prompts, self.costs.prefill_token_s, now)
        cohort = self._cohorts[client] = self._next_cohort(self._cohorts.get(client), prompts, streams)
        part = _Part(self.costs, self._chunk, prompts, cohort)
        if not streams:
            # As long as nobody arrived: after an arrival others may follow, and wait for this step.
            quiet_s = now - max(prompt.state.arrived for prompt in prompts)
            step = part.step([], part.alone(min(most_s, max(SOON_S, quiet_s))))
        else:
            step = self._beside(streams, share, part)
        if step.reads:
            self._num_reads += 1
            self._last_read[client] = self._num_reads
        return step

    def _next_client(self, prompts: list[S]) -> tuple[str, list[S]]:
        """The client whose prompts were read longest ago, and those; forgets clients without any."""
        clients = dict.fromkeys(prompt.client for prompt in prompts)
        self._cohorts = {name: cohort for name, cohort in self._cohorts.items() if name in clients}
        self._last_read = {name: number for name, number in self._last_read.items() if name in clients}
        client = min(clients, key=lambda name: self._last_read.get(name, -1))
        return client, [prompt for prompt in prompts if prompt.client == client]

    def _beside(self, streams: list[S], share: float, part: _Part[S]) -> StepPlan[S]:
        """A step while there are streams and prompts. share: of the time, for the streams."""
        balance, decode_s = self._balance, self.costs.decode_s(len(streams))
        earned = (1.0 - share) / share  # by the prompts, in each second of the streams
        due_s = balance.paused_s / earned
        joins = part.joins

        # One step of both takes at most twice the streams' own: each of their tokens waits for all of it.
        tokens = part.within(PAUSE_S - decode_s if joins else decode_s)
        may_mix = not balance.is_pause and tokens >= PART and part.seconds(tokens) <= decode_s
        if may_mix and self.costs.mixing_pays(len(streams), tokens):
            return part.step(streams, tokens if joins or balance.ran_s >= due_s else 0)

        # Pauses stay rare among the times between tokens: each is no longer than what RUN_STEPS earn, and as many steps
        # are between two of them, unless that is more than the largest share of the streams. Streams that wait for a
        # cohort take one step after each pause.
        pause_s, run_s = PAUSE_S - decode_s, RUN_STEPS * decode_s
        if joins:
            due_s = 0.0
        else:
            pause_s = min(pause_s, run_s * earned)
            if self._stream_share is None:
                due_s = max(due_s, min(run_s, balance.paused_s * MAX_SHARE / (1.0 - MAX_SHARE)))
        # Pauses would help nobody if the streams end before the cohort could be read.
        is_free = not joins and self._stream_share is None
        ends_first = is_free and _answer(streams) * decode_s < part.cohort_s
        if balance.is_pause:
            tokens = part.rest(pause_s - balance.paused_s)
        elif balance.ran_s >= due_s and not ends_first:
            tokens = part.within(pause_s)
        else:
            tokens = 0
        return part.step([] if tokens else streams, tokens)

    def _next_cohort(self, cohort: _Cohort[S] | None, prompts: list[S], streams: list[S]) -> _Cohort[S]:
        """The cohort that is being read. cohort: the one before. prompts: in reading order."""
        if cohort is not None:
            members = [prompt for prompt in prompts if prompt in cohort.members]
            has_newer = any(prompt not in cohort.among for prompt in prompts)
            # A choice stays, so that noise changes it once and not in each step. An arrival may change it until a
            # member is read up to its last token, and so waits for the others.
            if members and not (has_newer and all(prompt.num_uncomputed > 1 for prompt in members)):
                return cohort
            if not has_newer:
                return _Cohort(prompts[: cohort.size], cohort.among, cohort.size)
        token_s = self.costs.prefill_token_s or 1.0
        # While no step is known, any is assumed to take as long as 8 tokens of a prompt, as one of a stream on CPUs.
        decode_s: Curve = self.costs.decode.curve(self.costs.prefill_token_s) or (lambda _rows: 8.0 * token_s)
        items = [Reading(prompt.num_uncomputed * token_s, _answer([prompt])) for prompt in prompts]
        if streams:
            # Streams join the prompts that arrived with them if one cohort of all of them has the least sum of times.
            began = max(stream.state.first_token or 0.0 for stream in streams)
            begun = [Reading(0.0, _answer(streams))] * len(streams)
            joining = cohort_size([*begun, *items], decode_s) - len(streams)
            if (
                joining > 0
                and sum(item.reading_s for item in items[:joining]) <= JOIN_S
                and all(prompt.state.arrived <= began for prompt in prompts[:joining])
            ):
                return _Cohort(prompts[:joining], prompts, joining, joins=True)
        size = cohort_size(items, decode_s)
        return _Cohort(prompts[:size], prompts, size)

    def observe(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        """Learn from the planned step, which computed these numbers of tokens."""
        self.costs.observe(num_decode, num_prefill, seconds)
        decode_s = seconds
        if num_prefill:
            decode_s = min(seconds, self.costs.decode_s(num_decode)) if num_decode else 0.0
            self.mixed_total += num_decode > 0
            self.pauses_total += self._num_streams > 0 and not num_decode and not self._balance.is_pause
        self._balance = self._balance.after(self._num_streams, decode_s, seconds - decode_s)


def reading_order(prompts: Iterable[S], token_s: float, now: float) -> list[S]:
    """Shortest remaining first. A prompt that would otherwise wait too long goes first, the oldest of them foremost.
    Too long: MAX_WAIT times what it and those before it take in order of arrival."""
    by_arrival = sorted(prompts, key=lambda prompt: prompt.state.arrived)
    in_order_s = accumulate((prompt.prefill_end - prompt.num_cached) * token_s for prompt in by_arrival)
    late: list[S] = []
    others: list[S] = []
    for prompt, due_s in zip(by_arrival, in_order_s, strict=True):
        waited_s = now - prompt.state.arrived + prompt.num_uncomputed * token_s
        (late if waited_s >= MAX_WAIT * due_s else others).append(prompt)
    return [*late, *sorted(others, key=lambda prompt: prompt.num_uncomputed)]


def _share_by_count(streams: Sequence[Planned], prompts: Sequence[Planned]) -> float:
    """The streams' share of each client's sequences, as a mean over the clients: they are equal."""
    counts = Counter(sequence.client for sequence in (*streams, *prompts))
    decoding = Counter(stream.client for stream in streams)
    return sum(decoding[client] / counts[client] for client in counts) / len(counts)


def _answer(sequences: Sequence[Planned]) -> int:
    """The most tokens that any of them may still write."""
    return max(sequence.max_new - sequence.num_generated for sequence in sequences)


class _Part(Generic[S]):
    """What a step reads. The prompts of the cohort end together, before any other prompt does."""

    def __init__(self, costs: StepCosts, chunk: int, prompts: list[S], cohort: _Cohort[S]) -> None:
        self.joins = cohort.joins
        self._members = [prompt for prompt in prompts if prompt in cohort.members]
        self._others = [prompt for prompt in prompts if prompt not in cohort.members]
        self._chunk = chunk
        self._left = sum(prompt.num_uncomputed for prompt in prompts)
        self._cohort_left = sum(prompt.num_uncomputed for prompt in self._members)
        self._token_s = costs.prefill_token_s
        self.cohort_s = self.seconds(self._cohort_left)

    def seconds(self, tokens: int) -> float:
        """What so many tokens take; 0 while no cost is known."""
        return tokens * self._token_s

    def step(self, streams: list[S], tokens: int) -> StepPlan[S]:
        """A step of so many tokens. The last token of a prompt is read only in the step in which the cohort ends, and
        there with all other prompts that lack no more than that: streams that begin together decode together."""
        if not tokens:
            return StepPlan(streams)
        ends = self._cohort_left <= tokens
        reads = [(prompt, prompt.num_uncomputed - (not ends)) for prompt in self._members]
        for prompt in self._others:
            left = prompt.num_uncomputed
            reads.append((prompt, left if ends and left == 1 else left - 1))
        return StepPlan(streams, [read for read in reads if read[1]], tokens)

    def alone(self, seconds: float) -> int:
        """Tokens of a step without streams: whole tiles, at least one; fewer if the cohort ends before."""
        if not self._token_s:
            return min(self._chunk, FIRST_TOKENS)
        return self._until_end(max(1, int(seconds / self._token_s) // TILE) * TILE)

    def within(self, seconds: float) -> int:
        """Tokens that take this long, and at least a tile if that takes PAUSE_S at most."""
        if self._left >= TILE and 0.0 < self.seconds(TILE) <= PAUSE_S:
            return self._until_end(max(TILE, self._fitting(seconds)))
        return min(self._chunk, PART)

    def rest(self, seconds: float) -> int:
        """Tokens that go on with a pause: a tile at least, or all that is left; none while no cost is known."""
        tokens = self._fitting(seconds) if self._token_s else 0
        return self._until_end(tokens) if tokens >= min(TILE, self._left) else 0

    def _until_end(self, tokens: int) -> int:
        """The first tokens of a cohort need not wait for the next cohort, but fewer than a tile save little."""
        return min(self._chunk, tokens, max(TILE, -(-self._cohort_left // PART) * PART))

    def _fitting(self, seconds: float) -> int:
        """Whole parts, which kernels compute best."""
        return int(seconds / self._token_s) // PART * PART
