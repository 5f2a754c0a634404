"""Whose turn it is: a batch is computed with one set of LoRA adapters, and the sets that run take turns.

Pure. A set keeps its turn for a slice of time, since a change makes llama.cpp reserve its graph anew (7 ms for a model
of 7 layers, 15 ms for one of 24); then the set that has waited longest has it. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.1


class AdapterTurns(Generic[K]):
    """No set waits for longer than a slice and a step of each of the others."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._current: K | None = None
        self._since = 0.0
        self._served: dict[K, float] = {}

    def take(self, running: Sequence[K], now: float) -> K:
        """Which of those that run, at least one, has the next step. A set that is new comes before those that had one.

        now: of any clock that does not go back.
        """
        if self._current not in running or now - self._since >= self._slice_s:
            self._current = min(running, key=lambda key: self._served.get(key, float("-inf")))
            self._since = now
        assert self._current is not None
        kept = {key: self._served[key] for key in running if key in self._served}
        self._served = kept | {self._current: now}
        return self._current
