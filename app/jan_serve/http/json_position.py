"""Finds the position of a value in the text of a JSON body, for error messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from jan_serve.text.lone_surrogates import without_lone_surrogates

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,\]}]+")
_NESTING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_MAX_STEPS: Final = 20_000
"""Limit on the strings and brackets that are scanned: some milliseconds."""


class Span(NamedTuple):
    """Half-open range of bytes."""

    start: int
    end: int


class _TooFar(Exception):
    """The value lies beyond the scan limit."""


def line_and_column(body: bytes, offset: int) -> tuple[int, int]:
    """Line (from 1) of the byte before `offset`, and how many bytes of that line are before `offset`."""
    before = body[:offset]
    return before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1


def span_of(body: bytes, path: Sequence[str | int]) -> Span | None:
    """The span of the value at this path; None if it lies beyond the scan limit.

    body: valid JSON. path: names and indices that exist; of a repeated name, the last counts.
    """
    try:
        return _Reader(body).span(path)
    except _TooFar:
        return None


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._steps = 0

    def span(self, path: Sequence[str | int]) -> Span:
        at = self._space(0)
        for step in path:
            at = self._member(at, step) if isinstance(step, str) else self._item(at, step)
        return Span(at, self._end(at))

    def _member(self, at: int, name: str) -> int:
        """Start of the value of the last member of this name in the object at `at`."""
        at = self._space(at + 1)
        found = at
        while self._body[at] != ord("}"):
            end = self._end(at)
            value = self._space(self._space(end) + 1)
            if msgspec.json.decode(without_lone_surrogates(self._body[at:end])) == name:
                found = value
            at = self._next(value)
        return found

    def _item(self, at: int, index: int) -> int:
        at = self._space(at + 1)
        for _ in range(index):
            at = self._next(at)
        return at

    def _next(self, at: int) -> int:
        """After the value at `at` and a comma that may follow."""
        at = self._space(self._end(at))
        return self._space(at + 1) if self._body[at] == ord(",") else at

    def _end(self, at: int) -> int:
        """The end of the value at `at`."""
        first = self._body[at : at + 1]
        if first not in (b"{", b"["):
            self._count()
            match = (_STRING if first == b'"' else _SCALAR).match(self._body, at)
            assert match is not None
            return match.end()
        depth = 0
        for match in _NESTING.finditer(self._body, at):
            self._count()
            depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(match[0], 0)
            if depth == 0:
                return match.end()
        raise AssertionError("an unclosed object or array is not valid JSON")

    def _space(self, at: int) -> int:
        match = _SPACE.match(self._body, at)
        assert match is not None
        return match.end()

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _TooFar
