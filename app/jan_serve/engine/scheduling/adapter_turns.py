"""Round robin over sets of LoRA adapters: a batch is computed with one set. Pure.

A set keeps its turn for a time slice, because a change makes llama.cpp reserve its graph again (7 ms for a model of 7
layers, 15 ms for one of 24). Then the set that has waited longest gets its turn. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.1


class AdapterTurns(Generic[K]):
    """No set waits longer than a slice and a step of each other set."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._current: K | None = None
        self._since = 0.0
        self._served: dict[K, float] = {}

    def take(self, running: Sequence[K], now: float) -> K:
        """The set of the next step; new sets come first. running: not empty. now: of any monotonic clock."""
        if self._current not in running or now - self._since >= self._slice_s:
            self._current = min(running, key=lambda key: self._served.get(key, float("-inf")))
            self._since = now
        assert self._current is not None
        kept = {key: self._served[key] for key in running if key in self._served}
        self._served = kept | {self._current: now}
        return self._current
