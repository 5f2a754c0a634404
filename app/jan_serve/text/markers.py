"""Finds the first of several markers in text that is still growing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Found(NamedTuple):
    """What a search came to. Text before `start` holds no marker and no beginning of one.

    marker: the marker at `start`; None where there is none, or where more text is needed to tell.
    """

    start: int
    marker: str | None


class MarkerSet:
    """Markers that divide a text. The one that starts first wins; of several there, the longest.

    Not a stop-string matcher: that one goes by the end of a match (see `StopMatcher`). Immutable, so it can be shared.
    """

    __slots__ = ("_firsts", "_longest", "_markers", "_pattern")

    def __init__(self, markers: Iterable[str]) -> None:
        """Raises ValueError for an empty marker."""
        self._markers = tuple(sorted(set(markers), key=lambda marker: (-len(marker), marker)))
        if "" in self._markers:
            raise ValueError("a marker must not be empty")
        self._longest = len(self._markers[0]) if self._markers else 0
        self._firsts = frozenset(marker[0] for marker in self._markers)
        # An empty alternation would match everywhere; this one matches nowhere.
        self._pattern = re.compile("|".join(map(re.escape, self._markers)) or "(?!)")

    def find(self, text: str, start: int = 0, *, final: bool = False) -> Found:
        """Search from `start`. final: no more text will come, so an unfinished marker is text."""
        match = self._pattern.search(text, start)
        unfinished = len(text) if final else self._unfinished(text, start)
        if match is not None and match.start() < unfinished:
            return Found(match.start(), match.group())
        return Found(unfinished, None)

    def _unfinished(self, text: str, start: int) -> int:
        """Where the earliest beginning of a marker lies that the end of the text cuts off; else the end."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[at] not in self._firsts:
                continue
            tail = text[at:]
            if any(len(marker) > len(tail) and marker.startswith(tail) for marker in self._markers):
                return at
        return len(text)


@lru_cache(maxsize=256)
def marker_set(*markers: str) -> MarkerSet:
    """A shared MarkerSet. For markers that come from code: what is made from requests is not worth keeping."""
    return MarkerSet(markers)
