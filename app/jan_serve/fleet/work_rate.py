"""How many prompt tokens a second a node gets through, learned from the time until answers begin."""

from __future__ import annotations

from typing import Final

FIRST_TOKENS_PER_S: Final = 1000.0
_PRIOR_TOKENS: Final = 500.0
_KEEP: Final = 0.98
_MIN_S: Final = 1e-3
_HOPE: Final = 1.5
"""An unknown node counts as somewhat better than the average, so that it gets its first requests."""


class WorkRate:
    """Tokens over seconds, of the last requests.

    The tokens of an observation are those to compute for it and for the ones that waited before it, so that load does
    not look like a slow machine. Short prompts say little and weigh little: both sums decay, and long ones dominate.
    """

    __slots__ = ("_average", "_is_measured", "_is_streamed", "_relative", "_seconds", "_tokens")

    def __init__(self, average: WorkRate | None = None, relative: float = 1.0) -> None:
        """average: of all nodes. relative: to that, as the node's owner says; only the start."""
        self._average = average
        self._relative = min(max(relative, 1e-3), 1e3)
        self._tokens = _PRIOR_TOKENS
        self._seconds = _PRIOR_TOKENS / FIRST_TOKENS_PER_S
        self._is_measured = False
        self._is_streamed = False

    @property
    def is_measured(self) -> bool:
        return self._is_measured

    @property
    def tokens_per_s(self) -> float:
        if not self._is_measured and self._average is not None:
            return self._average.tokens_per_s * self._relative * _HOPE
        return self._tokens / self._seconds

    def observe(self, tokens: float, seconds: float, *, streamed: bool) -> None:
        """streamed: until the first byte; else until the whole answer, which counts until there is something better."""
        average = self._average
        if not self._is_measured and average is not None:
            self._seconds = _PRIOR_TOKENS / (average.tokens_per_s * self._relative)
        if average is not None:
            average.observe(tokens, seconds, streamed=streamed)
        if self._is_streamed and not streamed:
            return
        self._is_measured = True
        self._is_streamed = streamed
        self._tokens = self._tokens * _KEEP + max(tokens, 1.0)
        self._seconds = self._seconds * _KEEP + max(seconds, _MIN_S)
