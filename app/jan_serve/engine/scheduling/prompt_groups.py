"""Decides which of the waiting prompts end together, so that their streams decode in the same steps. Pure.

Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import isclose
from typing import Final, NamedTuple

import msgspec

LARGEST: Final = 32
"""Prompts of a group: the last token of each must fit in the smallest part that is read."""
_TILES: Final = (4, 8, 16)
"""llama.cpp's kernels on CPUs multiply four rows together: four streams cost about as much as three."""
_NEAR: Final = 1.03
"""Sums within this factor are alike: the choice whose last answer ends first is taken, which is the least work."""
ASSUMED_TOKENS: Final = 256
"""Of an answer without a nearer limit."""


class Group(msgspec.Struct, frozen=True):
    """members: keys of the prompts that end together. among: keys of all prompts that it was chosen from.

    size: of it and of the other groups of these prompts; 0: only guessed. joins: streams that have just begun wait for
    it, with a token after each pause.
    """

    members: frozenset[Hashable] = frozenset()
    among: frozenset[Hashable] = frozenset()
    size: int = 0
    joins: bool = False


class Item(msgspec.Struct, frozen=True):
    """A prompt. reading_s: how long it takes to read. tokens: most that its answer may have."""

    reading_s: float
    tokens: float


def group_size(items: Sequence[Item], decode_s: Callable[[int], float]) -> int:
    """How many of these prompts, in this order, end together. decode_s: of a step of so many streams.

    Small groups give the first clients their answers soon, large ones decode more streams in a step. The choice has the
    least sum of four times: mean and last first token, mean and last end. Of sums that are alike, the one whose last
    answer ends first is taken. So the choice does not depend on how fast the machine is, only on how much faster it
    reads than it writes, and what more streams add to a step.
    """
    sizes = {1, min(LARGEST, len(items)), *(size for size in _TILES if size < len(items))}
    times = {size: _times(items, size, decode_s) for size in sorted(sizes)}
    least_s = min(found.sum_s for found in times.values())
    near = {size: found.last_end_s for size, found in times.items() if found.sum_s <= _NEAR * least_s}
    soonest_s = min(near.values())
    return next(size for size, end_s in near.items() if isclose(end_s, soonest_s))


def guessed_decode_s(token_s: float, streams: int) -> float:
    """Of a step while none is known: as on a CPU, from what a token of a prompt takes.

    Measured with 0.5 B and 0.9 B weights and AVX2 or AVX-512: as long as 8 to 12 tokens of a prompt, and 2.4 to 3.5 for
    each stream.
    """
    return token_s * (8.0 + 2.5 * streams)


class _Times(NamedTuple):
    sum_s: float
    last_end_s: float


def _times(items: Sequence[Item], size: int, decode_s: Callable[[int], float]) -> _Times:
    """With groups of this size that are read and decoded one after the other."""
    firsts_s = ends_s = first_s = end_s = 0.0
    for start in range(0, len(items), size):
        group = items[start : start + size]
        first_s = end_s + sum(item.reading_s for item in group)
        end_s = first_s + decode_s(len(group)) * max(min(item.tokens, ASSUMED_TOKENS) for item in group)
        firsts_s += len(group) * first_s
        ends_s += len(group) * end_s
    return _Times((firsts_s + ends_s) / len(items) + first_s + end_s, end_s)
