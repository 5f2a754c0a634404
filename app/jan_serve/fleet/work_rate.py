"""How many prompt tokens a second a node gets through, learned from the time until answers begin."""

from __future__ import annotations

from typing import Final

PRIOR_TOKENS_PER_S: Final = 1000.0
_PRIOR_TOKENS: Final = 500.0
_KEEP: Final = 0.98
_MIN_S: Final = 1e-3


class WorkRate:
    """Tokens over seconds, of the last requests.

    The tokens of an observation are those to compute for it and for the ones that waited before it, so that load does
    not look like a slow machine. Short prompts say little and weigh little: both sums decay, and long ones dominate.
    """

    __slots__ = ("_is_streamed", "_seconds", "_tokens")

    def __init__(self, relative: float = 1.0) -> None:
        """relative: to an average node, as its owner says; only the start."""
        self._tokens = _PRIOR_TOKENS
        self._seconds = _PRIOR_TOKENS / (PRIOR_TOKENS_PER_S * min(max(relative, 1e-3), 1e3))
        self._is_streamed = False

    @property
    def tokens_per_s(self) -> float:
        return self._tokens / self._seconds

    def observe(self, tokens: float, seconds: float, *, streamed: bool) -> None:
        """streamed: until the first byte; else until the whole answer, which counts until there is something better."""
        if self._is_streamed and not streamed:
            return
        self._is_streamed = streamed
        self._tokens = self._tokens * _KEEP + max(tokens, 1.0)
        self._seconds = self._seconds * _KEEP + max(seconds, _MIN_S)
