"""Decides which of the waiting prompts end together, so that their streams decode in the same steps. Pure.

Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isclose
from typing import Final, NamedTuple

LARGEST: Final = 32
"""Prompts of a group: the last token of each must fit in the smallest part that is read."""
_SIZES: Final = (1, 4, 8)
"""Compared with all prompts. CPU kernels multiply four rows together: four streams cost about as much as three."""
_NEAR: Final = 1.03
"""Sums within this factor are equal: noise in the learnt costs would decide between them."""
_ASSUMED_TOKENS: Final = 256
"""Tokens of an answer without a nearer limit."""


class Item(NamedTuple):
    """A prompt: how long it takes to read, and the most tokens of its answer."""

    reading_s: float
    tokens: float


def group_size(items: Sequence[Item], decode_s: Callable[[int], float]) -> int:
    """How many of these prompts, in this order, end together. decode_s: of a step of so many streams.

    Small groups give the first clients their answers soon, large ones decode more streams in a step. The choice has the
    least sum of four times: mean and last first token, mean and last end. All four scale with the machine, so its speed
    decides nothing. Of equal sums, the choice whose last answer ends first is taken: it computes least.
    """
    sizes = sorted({min(LARGEST, len(items)), *(size for size in _SIZES if size < len(items))})
    times = [_times(items, size, decode_s) for size in sizes]
    least_s = min(sum_s for sum_s, _ in times)
    ends_s = {
        size: end_s for size, (sum_s, end_s) in zip(sizes, times, strict=True) if sum_s <= _NEAR * least_s
    }
    soonest_s = min(ends_s.values())
    return next(size for size, end_s in ends_s.items() if isclose(end_s, soonest_s))


def _times(items: Sequence[Item], size: int, decode_s: Callable[[int], float]) -> tuple[float, float]:
    """The sum of times and the last end, with groups of `size` that are read and decoded one after the other."""
    firsts_s = ends_s = first_s = end_s = 0.0
    for start in range(0, len(items), size):
        group = items[start : start + size]
        first_s = end_s + sum(item.reading_s for item in group)
        end_s = first_s + decode_s(len(group)) * max(min(item.tokens, _ASSUMED_TOKENS) for item in group)
        firsts_s += len(group) * first_s
        ends_s += len(group) * end_s
    return (firsts_s + ends_s) / len(items) + first_s + end_s, end_s
