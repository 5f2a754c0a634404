"""Finds the token at which the end of an answer is one pattern, again and again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from jan_serve.core.request import RepetitionDetection

_WORD: Final = 4
_FIRST_SPAN: Final = 8


class _Spans(NamedTuple):
    """Counts of tokens for one period: `half` equal ones make a second look worth it, `whole` ones are a repetition
    that counts, and `step` ones lie between looks."""

    half: int
    whole: int
    step: int


@lru_cache(maxsize=16)
def _spans(wanted: RepetitionDetection) -> Mapping[int, _Spans]:
    found: dict[int, _Spans] = {}
    for size in range(max(1, wanted.min_pattern_size), wanted.max_pattern_size + 1):
        whole = (max(wanted.min_count, -(-wanted.min_tokens // size)) - 1) * size
        step = max(1, whole // 2)
        found[size] = _Spans(whole - step + 1, whole, step)
    return found


class RepetitionDetector:
    """The tokens of one answer, and when to look for which period.

    An answer ends with a pattern of p tokens n times if its last (n-1)p tokens equal those p before them. A period is
    looked at once in half of that many tokens: then a repetition that is going to be complete is half there, and the
    next look is when it would be complete. So a period costs two looks in (n-1)p tokens, and a look one comparison of a
    token unless the text does repeat. Repetitions are found at the token that completes them."""

    def __init__(self, wanted: RepetitionDetection) -> None:
        self._spans = _spans(wanted)
        self._text = bytearray()
        self._length = 0
        self._due: dict[int, list[int]] = {}
        # Most answers end before the first look, and need no calendar.
        self._begins = min((size + spans.half for size, spans in self._spans.items()), default=0)
        self._is_planned = not self._spans
        self._last = 0

    def add(self, token: int) -> int:
        """The smallest size of a pattern that this token completes; 0 if there is none. Says so again with each token
        that goes on with it."""
        self._text += token.to_bytes(_WORD, "little", signed=True)
        self._length += 1
        if not self._is_planned and self._length >= self._begins:
            self._is_planned = True
            for size, spans in self._spans.items():
                self._plan(size + spans.half, size)
        found = [size for size in self._due.pop(self._length, ()) if self._look(size)]
        if self._last and self._equal(self._last, most := self._spans[self._last].whole) == most:
            found.append(self._last)
        self._last = min(found, default=0)
        return self._last

    def next_of(self, size: int) -> int:
        """The token with which the pattern goes on."""
        start = len(self._text) - size * _WORD
        return int.from_bytes(self._text[start : start + _WORD], "little", signed=True)

    def _look(self, size: int) -> bool:
        half, whole, step = self._spans[size]
        equal = self._equal(size, whole)
        self._plan(self._length + (whole - equal if half <= equal < whole else step), size)
        return equal >= whole

    def _plan(self, at: int, size: int) -> None:
        self._due.setdefault(at, []).append(size)

    def _equal(self, size: int, most: int) -> int:
        """How many of the last tokens equal those `size` before them, up to `most`."""
        text, end, back = self._text, len(self._text), size * _WORD
        most = min(most, self._length - size)
        equal, span = 0, 1
        while equal < most:
            span = min(span, most - equal)
            stop = end - equal * _WORD
            start = stop - span * _WORD
            if text[start:stop] == text[start - back : stop - back]:
                equal += span
                span = max(_FIRST_SPAN, span * 2)
            else:
                most = equal + span - 1
                span = max(1, span // 2)
        return equal
