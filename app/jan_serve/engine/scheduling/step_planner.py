"""Decides what the next step computes: a prefill chunk of prompts, the next token of each stream, or both. Pure.

A token of a stream waits for the whole step, so streams pause while prompts are read, and then run until they have had
their share. A step has rows of both kinds where that saves time and makes no step of the streams twice as long.
docs/adr/0035-streams-and-prompts-take-turns.md explains the choice. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from jan_serve.engine.scheduling.prefill_costs import TILE
from jan_serve.engine.scheduling.prompt_groups import (
    ASSUMED_TOKENS,
    Group,
    Item,
    group_size,
    guessed_decode_s,
)
from jan_serve.engine.scheduling.step_costs import StepCosts

PAUSE_S: Final = 1.4
"""The longest pause of streams, if MIN_TOKENS take no longer. With what a prediction lacks, below 1.5 s."""
ALONE_S: Final = 4.0
"""Of a step without streams, so that new requests soon get their turn and no step looks like a hang."""
SOON_S: Final = 0.5
"""Of a step without streams just after an arrival, since others may follow. Later steps are longer."""
RUN_STEPS: Final = 30
"""Steps of the streams between two pauses: fewer than 5 % of the times between their tokens are pauses."""
MAX_SHARE: Final = 0.7
"""Of the time, for streams beside prompts, however many they are."""
BEGUN_TOKENS: Final = 8
"""A stream of fewer tokens has just begun: it may wait for the prompts that arrived with it."""
JOIN_S: Final = 12.0
"""It waits for them no longer than this, a token after each pause."""
RARE: Final = 0.05
"""The share of the times between tokens that may be pauses."""
MAX_WAIT: Final = 2.0
"""How much longer a prompt may wait than in order of arrival."""
FIRST_TOKENS: Final = 512
"""Of a step without streams, while no cost is known."""
MIX_TIMES: Final = 2.0
"""A mixed step takes no longer than so many steps of the streams alone: each of their tokens waits for one."""
MIN_TOKENS: Final = 32
"""Of a prompt's part beside streams, however slow the machine is: half of them would take almost as long."""
WHOLE: Final = 32
"""Parts are multiples of it: kernels compute the rows that are left over one by one."""
NARROW: Final = 1.5
"""Times what a token costs in a batch of fewer rows than a tile, at most. One learnt from larger ones is not enough."""


class Prompt(msgspec.Struct, frozen=True):
    """A prompt that is being read. size: tokens that its prefill computes in all; left: of these, not computed yet.

    depth: tokens of the sequence that are in the cache. answer: most tokens that it may write.
    """

    key: Hashable
    size: int
    left: int
    depth: int = 0
    arrived: float = 0.0
    answer: float = float("inf")


class Streams(msgspec.Struct, frozen=True):
    """The decoding sequences. longest: most tokens of any; began: time of the latest first token.

    left: most tokens that any may still write. share: of the time, beside prompts; None: by heads.
    """

    count: int = 0
    longest: int = 0
    began: float = 0.0
    left: float = float("inf")
    share: float | None = None


class Balance(msgspec.Struct, frozen=True):
    """paused_s: length of the streams' latest pause; ran_s: time that they have had since."""

    paused_s: float = 0.0
    ran_s: float = 0.0

    def after(self, num_streams: int, decode_s: float, prefill_s: float) -> Balance:
        """After a step of these times beside this number of streams."""
        if not num_streams:
            return Balance()
        if not prefill_s:
            return Balance(self.paused_s, self.ran_s + decode_s)
        if self.ran_s:
            return Balance(prefill_s, decode_s)
        return Balance(self.paused_s + prefill_s, decode_s)


class StepPlan(msgspec.Struct, frozen=True):
    """prefill_tokens: max tokens of prompts. decodes: whether the streams take part.

    reads: indices of prompts in the order of the step, and the most tokens of each. group: of the prompts, for the plan
    of the next step.
    """

    prefill_tokens: int = 0
    decodes: bool = True
    reads: tuple[tuple[int, int], ...] = ()
    group: Group = msgspec.field(default_factory=Group)


def plan_step(
    prompts: Sequence[Prompt],
    streams: Streams,
    balance: Balance,
    costs: StepCosts,
    *,
    now: float,
    chunk: int,
    group: Group | None = None,
    stream_share: float | None = None,
    alone_s: float = ALONE_S,
) -> StepPlan:
    """The next step. chunk: max tokens of a batch. group: of the plan before. stream_share: None: by heads.

    alone_s: of a step without streams, at most.
    """
    if not prompts:
        return StepPlan()
    order = reading_order(prompts, costs.prefill_base_s, now)
    ordered = [prompts[index] for index in order]
    depth = ordered[0].depth
    if group is None or _is_over(group, prompts):
        group = _choose(group, ordered, streams, costs, depth)
    part = _Part(costs, depth, chunk, order, ordered, group)
    if not streams.count:
        newest = max(prompt.arrived for prompt in prompts)
        return part.step(part.alone(min(alone_s, SOON_S + 2.0 * max(0.0, now - newest))), decodes=False)
    decode_s = costs.decode_s(streams.count)
    by_heads = streams.count / (streams.count + len(prompts))
    share = stream_share or min(MAX_SHARE, by_heads if streams.share is None else streams.share)
    prompts_ratio = (1.0 - share) / share
    longest_s, due_s = PAUSE_S - decode_s, 0.0
    is_pause = balance.paused_s > 0.0 and not balance.ran_s
    beside = part.within(longest_s if group.joins else decode_s * min(prompts_ratio, MIX_TIMES - 1.0))
    may_mix = not is_pause and beside >= MIN_TOKENS and part.seconds(beside) <= decode_s * (MIX_TIMES - 1.0)
    if may_mix and costs.mixing_pays(streams.count, beside, depth):
        is_due = group.joins or balance.ran_s + decode_s >= balance.paused_s / prompts_ratio
        return part.step(beside if is_due else 0, decodes=True)
    ends_sooner = streams.left * decode_s <= part.group_s
    if stream_share is None and not is_pause and not group.joins and ends_sooner:
        return part.step(0, decodes=True)
    if not group.joins:
        longest_s = min(longest_s, RUN_STEPS * decode_s * prompts_ratio)
        due_s = balance.paused_s / prompts_ratio
        if stream_share is None:
            most_s = balance.paused_s * MAX_SHARE / (1.0 - MAX_SHARE)
            due_s = max(due_s, min(RUN_STEPS * decode_s, most_s))
    if is_pause:
        tokens = part.rest(longest_s - balance.paused_s)
    else:
        tokens = part.within(longest_s) if balance.ran_s >= due_s else 0
    return part.step(tokens, decodes=not tokens)


def reading_order(prompts: Sequence[Prompt], token_s: float, now: float) -> tuple[int, ...]:
    """Shortest remaining first. A prompt that would otherwise wait too long goes first, the oldest of them foremost.

    Too long: MAX_WAIT times what it and those before it take in order of arrival.
    """
    by_arrival = sorted(range(len(prompts)), key=lambda index: prompts[index].arrived)
    in_order_s = accumulate(prompts[index].size * token_s for index in by_arrival)

    def is_late(prompt: Prompt, due_s: float) -> bool:
        return now - prompt.arrived + prompt.left * token_s >= MAX_WAIT * due_s

    late = [
        index for index, due_s in zip(by_arrival, in_order_s, strict=True) if is_late(prompts[index], due_s)
    ]
    others = sorted(
        set(by_arrival) - set(late), key=lambda index: (prompts[index].left, prompts[index].arrived)
    )
    return (*late, *others)


def _is_over(group: Group, prompts: Sequence[Prompt]) -> bool:
    """All members are read, or another prompt arrived before any of them was."""
    members = [prompt for prompt in prompts if prompt.key in group.members]
    has_newer = any(prompt.key not in group.among for prompt in prompts)
    return not members or (has_newer and all(prompt.left > 1 for prompt in members))


def _choose(
    last: Group | None,
    prompts: Sequence[Prompt],
    streams: Streams,
    costs: StepCosts,
    depth: float,
) -> Group:
    """The next group. last: the one before; its size stays while no prompt arrives. prompts: in reading order."""
    keys = [prompt.key for prompt in prompts]
    among = frozenset(keys)
    if last is not None and last.size and among <= last.among:
        return Group(frozenset(keys[: last.size]), last.among, last.size)
    token_s = costs.prefill_token_s(TILE, depth) or 1.0
    curve = costs.decode_curve()
    is_known = curve is not None

    def decode_s(rows: int) -> float:
        return guessed_decode_s(token_s, rows) if curve is None else curve(rows)

    items = [Item(prompt.left * token_s, prompt.answer) for prompt in prompts]
    if streams.count and streams.longest < BEGUN_TOKENS:
        size = group_size([*([Item(0.0, streams.left)] * streams.count), *items], decode_s)
        joining = size - streams.count
        reading_s = sum(item.reading_s for item in items[:joining])
        pauses = streams.count * reading_s / PAUSE_S
        if (
            joining > 0
            and reading_s <= JOIN_S
            and pauses <= RARE * size * min(streams.left, ASSUMED_TOKENS)
            and all(prompt.arrived <= streams.began for prompt in prompts[:joining])
        ):
            return Group(frozenset(keys[:joining]), among, size if is_known else 0, joins=True)
    size = group_size(items, decode_s)
    return Group(frozenset(keys[:size]), among, size if is_known else 0)


class _Part:
    """What a step reads. The prompts of the group end together, before any other prompt does."""

    def __init__(
        self,
        costs: StepCosts,
        depth: float,
        chunk: int,
        order: Sequence[int],
        ordered: Sequence[Prompt],
        group: Group,
    ) -> None:
        self._costs = costs
        self._depth = depth
        self._chunk = chunk
        self._group = group
        # Sorting is stable: the members first, each in reading order.
        pairs = sorted(zip(order, ordered, strict=True), key=lambda pair: pair[1].key not in group.members)
        self._prompts = pairs
        self._left = sum(prompt.left for prompt in ordered)
        self._group_left = sum(prompt.left for prompt in ordered if prompt.key in group.members)

    @property
    def group_s(self) -> float:
        """What the rest of the group takes; 0 while no cost is known."""
        return self._group_left * self._token_s(TILE)

    def seconds(self, tokens: int) -> float:
        """What so many tokens take; 0 while no cost is known."""
        return tokens * self._token_s(tokens)

    def step(self, tokens: int, *, decodes: bool) -> StepPlan:
        """So many tokens. The last one of a prompt only if the group ends, and with it all that lack only that one."""
        members, ends = self._group.members, self._group_left <= tokens
        reads = tuple(
            (index, prompt.left if ends and (prompt.left == 1 or prompt.key in members) else prompt.left - 1)
            for index, prompt in self._prompts
        )
        return StepPlan(tokens, decodes, tuple(read for read in reads if tokens and read[1]), self._group)

    def alone(self, seconds: float) -> int:
        """Whole tiles, at least one; less if the group ends before."""
        token_s = self._token_s(self._chunk)
        if not token_s:
            return min(self._chunk, FIRST_TOKENS)
        return self._until_end(max(1, int(seconds / token_s) // TILE) * TILE)

    def within(self, seconds: float) -> int:
        """Tokens that take this long, and at least a tile if that takes PAUSE_S at most."""
        if self._left >= TILE and 0.0 < TILE * self._token_s(TILE) <= PAUSE_S:
            return self._until_end(max(TILE, self._fitting(seconds)))
        return min(self._chunk, MIN_TOKENS)

    def rest(self, seconds: float) -> int:
        """Tokens that go on with a pause: a tile at least, or all that is left; none while no cost is known."""
        if not self._token_s(TILE):
            return 0
        tokens = min(self._chunk, self._fitting(seconds))
        return self._until_end(tokens) if tokens >= min(TILE, self._left) else 0

    def _until_end(self, tokens: int) -> int:
        """The first tokens of a group need not wait for the next group, but fewer than a tile save little."""
        return min(self._chunk, tokens, max(TILE, -(-self._group_left // WHOLE) * WHOLE))

    def _fitting(self, seconds: float) -> int:
        """Whole parts. Below a tile, all that is left or none."""
        for rows in (2 * TILE, TILE):
            if (tokens := int(seconds / self._token_s(rows))) >= rows:
                return tokens // WHOLE * WHOLE
        tokens = int(seconds / (NARROW * self._token_s(1)))
        return self._left if self._left <= tokens else 0

    def _token_s(self, rows: int) -> float:
        return self._costs.prefill_token_s(rows, self._depth)
