"""This module finds the first of several markers, and stop strings, in streamed text. A MarkerSet goes by where a
marker starts, a StopMatcher by where a stop string ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple


class MarkerMatch(NamedTuple):
    """The result of a search. The text before `start` contains no marker, whole or unfinished. marker: the marker at
    `start`; None if there is none, or if only more text can tell."""

    start: int
    marker: str | None


class MarkerSet:
    """Markers that divide a text. The marker that starts first wins; of several at one position, the longest. Unlike
    `StopMatcher`, which goes by the end of a match. Immutable, so it can be shared."""

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


class StopMatch(NamedTuple):
    """A stop string found; start and end are in characters since the start of the stream."""

    stop: str
    start: int
    end: int


class StopMatcher:
    """Finds the stop string that ends first, and holds back text that may become one. Of several that end together,
    the longest wins. The result does not depend on how the stream is cut into pieces."""

    __slots__ = ("_held", "_longest", "_seen", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = _not_empty(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self._seen = 0

    @property
    def held(self) -> str:
        """Text fed but neither released nor matched."""
        return self._held

    def feed(self, text: str) -> tuple[str, StopMatch | None]:
        """Add `text`; return the text that cannot belong to a stop string, and the match that ends the stream, if any.
        After a match, the rest of the text is dropped; do not feed again."""
        if not self._stops:
            self._seen += len(text)
            return text, None
        window = self._held + text
        base = self._seen - len(self._held)
        self._seen += len(text)
        match = self._find(window, base)
        if match is not None:
            self._held = ""
            return window[: match.start - base], match
        keep = self._partial(window)
        self._held = window[len(window) - keep :]
        return window[: len(window) - keep], None

    def skip(self, text: str) -> None:
        """Count text without searching it. Raises ValueError while text is held back."""
        if self._held:
            raise ValueError("text that is held back cannot be skipped")
        self._seen += len(text)

    def finish(self) -> str:
        """End the stream: return the text held back."""
        held, self._held = self._held, ""
        return held

    def _find(self, window: str, base: int) -> StopMatch | None:
        found = [(base + index, stop) for stop in self._stops if (index := window.find(stop)) >= 0]
        matches = (StopMatch(stop, start, start + len(stop)) for start, stop in found)
        return min(matches, key=lambda match: (match.end, match.start), default=None)

    def _partial(self, window: str) -> int:
        """Length of the longest suffix of `window` that begins a stop string."""
        for size in range(min(len(window), self._longest - 1), 0, -1):
            tail = window[-size:]
            if any(stop.startswith(tail) for stop in self._stops if len(stop) > size):
                return size
        return 0


def _not_empty(stops: Sequence[str]) -> tuple[str, ...]:
    if not all(stops):
        raise ValueError("a stop string must not be empty")
    return tuple(stops)


class TokenEndMatcher:
    """Finds a stop string at the end of the text so far, or before one final line break. Holds nothing back. Finds
    none in the middle of a token: unlike StopMatcher, the result depends on how the stream is cut."""

    __slots__ = ("_longest", "_stops", "_tail")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = _not_empty(stops)
        self._longest = max(map(len, stops), default=0) + 1
        self._tail = ""

    def feed(self, text: str) -> str | None:
        """Add the text of a token; return the stop string at the end of the text, if any."""
        self._tail = (self._tail + text)[-self._longest :]
        before_break = self._tail.removesuffix("\n")
        ended = (stop for stop in self._stops if self._tail.endswith(stop) or before_break.endswith(stop))
        return next(ended, None)
