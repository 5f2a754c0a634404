"""Decides what the next step computes: tokens of prompts, the next token of each stream, or both. Pure.

A step with rows of both kinds rarely costs less than two steps, so streams pause while prompts are read, and then run
until they have had their share. docs/adr/0035-streams-and-prompts-take-turns.md explains the choice. Times are in
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition
from jan_serve.engine.scheduling.step_costs import LARGEST_DECODE, StepCosts

PAUSE_S: Final = 1.45
"""The longest pause of streams, if MIN_TOKENS take no longer. With what a prediction lacks, below 1.5 s."""
ALONE_S: Final = 4.0
"""Of a step without streams, so that new requests soon get their turn and no step looks like a hang."""
RUN_STEPS: Final = 30
"""Steps of the streams between two pauses: fewer than 5 % of the times between their tokens are pauses."""
MAX_SHARE: Final = 0.7
"""Of the time, for streams beside prompts, however many they are."""
TOGETHER_S: Final = 12.0
"""Prompts that arrived together and take no longer in all are read before their streams run."""
GATHER_S: Final = 30.0
"""Longer ones too, up to this time; beyond it, the first ones of them, whose streams then run together."""
END_S: Final = 10.0
"""Streams that fill a group and end within this time do so before more prompts are read that came with them."""
SOON_S: Final = 0.5
"""Streams that end within this time do so before any prompt is read: a pause would take longer."""
ROW_TILE: Final = 4
"""Rows that llama.cpp's CPU kernels multiply together: four streams cost about as much as three."""
PACE_S: Final = 0.1
"""Nobody reads more than ten tokens a second, so a group may be as large as its steps are not slower."""
BEGUN_TOKENS: Final = 24
"""A stream of fewer tokens has just begun: pauses of PAUSE_S, a token after each, make no more in GATHER_S."""
MAX_WAIT: Final = 2.0
"""How much longer a prompt may wait than in order of arrival."""
FIRST_TOKENS: Final = 512
"""Of a step without streams, while no cost is known."""
MIN_TOKENS: Final = 32
"""Of a prompt's part beside streams, however slow the machine is: half of them would take almost as long."""
WHOLE: Final = 32
"""Parts are multiples of it: kernels compute the rows that are left over one by one."""
NARROW: Final = 1.5
"""Times what a token costs in a batch of fewer rows than a tile, at most. One learnt from larger ones is not enough."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that is being read. size: tokens that its prefill computes in all; left: of these, not computed yet.

    depth: tokens of the sequence that are in the cache.
    """

    size: int
    left: int
    depth: int = 0
    arrived: float = 0.0


@dataclass(frozen=True, slots=True)
class Streams:
    """The decoding sequences. longest: most tokens of any; began: time of the latest first token.

    left: most tokens that any may still write. read: tokens that the prefills of all computed.
    """

    count: int = 0
    longest: int = 0
    began: float = 0.0
    left: float = float("inf")
    read: int = 0


@dataclass(frozen=True, slots=True)
class Balance:
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


@dataclass(frozen=True, slots=True)
class StepPlan:
    """prefill_tokens: max tokens of prompts. decodes: whether the streams take part. order: of the prompts."""

    prefill_tokens: int
    decodes: bool
    order: tuple[int, ...] = ()


def plan_step(
    prompts: Sequence[Prompt],
    streams: Streams,
    balance: Balance,
    costs: StepCosts,
    *,
    now: float,
    chunk: int,
    cells: int = 0,
    stream_share: float | None = None,
) -> StepPlan:
    """The next step. chunk: max tokens of a batch. cells: in use in the KV cache. stream_share: None: by heads."""
    if not prompts:
        return StepPlan(0, decodes=True)
    order = reading_order(prompts, costs.prefill_base_s, now)
    position = CachePosition(prompts[order[0]].depth, cells)
    part = _Part(costs, position, chunk, tuple(accumulate(prompts[index].left for index in order)))
    if not streams.count:
        return StepPlan(part.alone(), decodes=False, order=order)
    decode_s = costs.decode_s(streams.count)
    share = stream_share or min(MAX_SHARE, streams.count / (streams.count + len(prompts)))
    prompts_ratio = (1.0 - share) / share
    longest_s, due_s = PAUSE_S - decode_s, 0.0
    is_pause = balance.paused_s > 0.0 and not balance.ran_s
    came_together = all(prompt.arrived <= streams.began for prompt in prompts)
    gathers = came_together and _gathers([prompts[index] for index in order], streams, costs, position)
    beside = part.within(longest_s if gathers else decode_s * prompts_ratio)
    let_end_s = END_S if came_together and not gathers else SOON_S
    if stream_share is None and not is_pause and streams.left * decode_s <= let_end_s:
        return StepPlan(0, decodes=True)
    may_mix = not is_pause and beside >= MIN_TOKENS
    if may_mix and costs.mixing_pays(streams.count, beside, position):
        if gathers or balance.ran_s + decode_s >= balance.paused_s / prompts_ratio:
            return StepPlan(beside, decodes=True, order=order)
        return StepPlan(0, decodes=True)
    if not gathers:
        longest_s = min(longest_s, RUN_STEPS * decode_s * prompts_ratio)
        due_s = balance.paused_s / prompts_ratio
        if stream_share is None:
            most_s = balance.paused_s * MAX_SHARE / (1.0 - MAX_SHARE)
            due_s = max(due_s, min(RUN_STEPS * decode_s, most_s))
    if is_pause:
        tokens = part.rest(longest_s - balance.paused_s)
    else:
        tokens = part.within(longest_s) if balance.ran_s >= due_s else 0
    return StepPlan(tokens, decodes=not tokens, order=order if tokens else ())


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


def group_size(costs: StepCosts) -> int:
    """Streams that decode together: whole tiles of rows, at least one, whose step takes PACE_S at most."""
    count = ROW_TILE
    while count < LARGEST_DECODE and 0.0 < costs.decode_s(count + ROW_TILE) <= PACE_S:
        count += ROW_TILE
    return count


def _gathers(prompts: Sequence[Prompt], streams: Streams, costs: StepCosts, position: CachePosition) -> bool:
    """Whether prompts that arrived together with streams are read now, a token of the streams after each pause.

    Their first tokens come sooner, and their streams decode in the same steps. prompts: in reading order.
    """
    token_s = costs.prefill_token_s(TILE, position)
    if streams.longest >= BEGUN_TOKENS or not token_s:
        return False
    ends_s = [0.0, *accumulate(prompt.left * token_s for prompt in prompts)]
    total_s = ends_s[-1] + streams.read * token_s
    missing = min(len(prompts), group_size(costs) - streams.count)
    if missing > 0:
        return ends_s[missing] <= TOGETHER_S
    return total_s <= TOGETHER_S or (
        total_s <= GATHER_S and streams.left * costs.decode_s(streams.count) > END_S
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """How many tokens of prompts fit in a time. ends: numbers of tokens at which prompts end, in reading order."""

    costs: StepCosts
    position: CachePosition
    chunk: int
    ends: tuple[int, ...]

    def alone(self) -> int:
        """Whole tiles, at least one; less if a long prompt ends before."""
        token_s = self._token_s(self.chunk)
        if not token_s:
            return min(self.chunk, FIRST_TOKENS)
        tokens = min(self.chunk, max(1, int(ALONE_S / token_s) // TILE) * TILE)
        if self.ends[0] < tokens and self.ends[0] * token_s >= PAUSE_S:
            # The first token of a long prompt need not wait for the next prompt.
            return min(self.chunk, -(-self.ends[0] // WHOLE) * WHOLE)
        return tokens

    def within(self, seconds: float) -> int:
        """Tokens that take this long, and at least a tile if that takes PAUSE_S at most."""
        if self.ends[-1] >= TILE and 0.0 < TILE * self._token_s(TILE) <= PAUSE_S:
            return min(self.chunk, max(TILE, self._fitting(seconds)))
        return min(self.chunk, MIN_TOKENS)

    def rest(self, seconds: float) -> int:
        """Tokens that go on with a pause: a tile at least, or all that is left; otherwise none."""
        tokens = min(self.chunk, self._fitting(seconds))
        return tokens if tokens >= min(TILE, self.ends[-1]) else 0

    def _fitting(self, seconds: float) -> int:
        """Whole parts. Below a tile, all that is left or none."""
        for rows in (2 * TILE, TILE):
            if (tokens := int(seconds / self._token_s(rows))) >= rows:
                return tokens // WHOLE * WHOLE
        tokens = int(seconds / (NARROW * self._token_s(1)))
        return self.ends[-1] if self.ends[-1] <= tokens else 0

    def _token_s(self, rows: int) -> float:
        return self.costs.prefill_token_s(rows, self.position)
