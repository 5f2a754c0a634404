"""Finds the first of several markers in streamed text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class MarkerMatch(NamedTuple):
    """The result of a search. The text before `start` contains no marker, whole or unfinished.

    marker: the marker at `start`; None if there is none, or if only more text can tell.
    """

    start: int
    marker: str | None


class MarkerSet:
    """Markers that divide a text. The marker that starts first wins; of several at one position, the longest.

    Unlike `StopMatcher`, which goes by the end of a match. Immutable, so it can be shared.
    """

    __slots__ = ("_firsts", "_longest", "_markers", "_pattern")

    def __init__(self, markers: Iterable[str]) -> None:
        """Raises ValueError for an empty marker."""
        self._markers = tuple(sorted(set(markers), key=lambda marker: (-len(marker), marker)))
        if "" in self._markers:
            raise ValueError("a marker must not be empty")
        self._longest = len(self._markers[0]) if self._markers else 0
        self._firsts = frozenset(marker[0] for marker in self._markers)
        # An empty alternation would match everywhere; "(?!)" matches nowhere.
        self._pattern = re.compile("|".join(map(re.escape, self._markers)) or "(?!)")

    def find(self, text: str, start: int = 0, *, final: bool = False) -> MarkerMatch:
        """Search from `start`. final: the text is complete, so an unfinished marker is text."""
        match = self._pattern.search(text, start)
        unfinished = len(text) if final else self._unfinished(text, start)
        if match is not None and match.start() < unfinished:
            return MarkerMatch(match.start(), match.group())
        return MarkerMatch(unfinished, None)

    def _unfinished(self, text: str, start: int) -> int:
        """The position of the earliest marker cut off by the end of the text, or the end if there is none."""
        for index in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[index] not in self._firsts:
                continue
            tail = text[index:]
            if any(len(marker) > len(tail) and marker.startswith(tail) for marker in self._markers):
                return index
        return len(text)


@lru_cache(maxsize=256)
def marker_set(*markers: str) -> MarkerSet:
    """A cached MarkerSet. Only for markers from code: those from requests would fill the cache."""
    return MarkerSet(markers)
