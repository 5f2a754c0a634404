"""A thread's current phase, for readers on other threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

PhaseName = Literal["loading", "idle", "decode", "sample", "embed", "encode", "turn", "tokenize", "other"]


class PhaseClock:
    """The current phase, its start, and its request. One writer; readers get one consistent tuple."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._current: tuple[PhaseName, float, int | None] = ("loading", clock(), None)

    def enter(self, name: PhaseName, request_id: int | None = None) -> None:
        self._current = (name, self.clock(), request_id)

    def read(self) -> tuple[PhaseName, float, int | None]:
        """Phase, seconds since its start, and its request."""
        name, since, request_id = self._current
        return name, max(0.0, self.clock() - since), request_id
