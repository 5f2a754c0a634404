"""How much is asked of a node: prompt tokens a second of late, whether they were cached or not."""

from __future__ import annotations

from math import exp
from typing import Final

WINDOW_S: Final = 60.0


class Demand:
    """An exponential mean. `now` does not go back."""

    __slots__ = ("_at_s", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at_s = 0.0

    def add(self, tokens: float, now: float) -> None:
        self._tokens = self._left(now) + tokens
        self._at_s = now

    def tokens_per_s(self, now: float) -> float:
        return self._left(now) / WINDOW_S

    def _left(self, now: float) -> float:
        return self._tokens * exp((self._at_s - now) / WINDOW_S)
