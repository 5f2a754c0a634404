"""Sets of Unicode code points as sorted, disjoint, non-adjacent inclusive ranges. Values are plain tuples: hashable,
compared by content, shared freely. The universe is 0..0x10FFFF; surrogates are members like any other, since no
decoded text ever holds one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

CharSet: TypeAlias = tuple[tuple[int, int], ...]

MAX_CODE_POINT = 0x10FFFF
ANY: CharSet = ((0, MAX_CODE_POINT),)
UNESCAPED: CharSet = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, MAX_CODE_POINT))
"""Stand for themselves in strings of JSON; without DEL, as llguidance's `json_slices`."""


def char_set(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """Normalise ranges in any order, overlapping or not. Ranges with low > high are dropped."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if result and low <= result[-1][1] + 1:
            if high > result[-1][1]:
                result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return tuple(result)


def of_chars(text: str) -> CharSet:
    """The set of the characters of `text`."""
    return char_set((ord(c), ord(c)) for c in text)


def union(*sets: CharSet) -> CharSet:
    """Every code point that is in one of the sets."""
    if len(sets) == 1:
        return sets[0]
    return char_set(r for s in sets for r in s)


def complement(s: CharSet) -> CharSet:
    """Every code point that is not in `s`."""
    result: list[tuple[int, int]] = []
    start = 0
    for low, high in s:
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        result.append((start, MAX_CODE_POINT))
    return tuple(result)


def intersect(a: CharSet, b: CharSet) -> CharSet:
    """Every code point that is in both sets."""
    result: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low = max(a[i][0], b[j][0])
        high = min(a[i][1], b[j][1])
        if low <= high:
            result.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def subtract(a: CharSet, b: CharSet) -> CharSet:
    """Every code point of `a` that is not in `b`."""
    return intersect(a, complement(b))


def contains(s: CharSet, code_point: int) -> bool:
    """Whether one code point is in the set."""
    return any(low <= code_point <= high for low, high in s)


def size(s: CharSet) -> int:
    """How many code points the set holds."""
    return sum(high - low + 1 for low, high in s)
