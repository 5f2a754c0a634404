"""What the engine thread does right now, for whoever watches it from another thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

PhaseName = Literal["loading", "idle", "decode", "sample", "embed", "other"]


class PhaseClock:
    """The current phase, since when, and for which request. One writer; readers get one consistent tuple."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._current: tuple[PhaseName, float, int | None] = ("loading", clock(), None)

    def enter(self, name: PhaseName, request_id: int | None = None) -> None:
        """The engine thread begins a phase."""
        self._current = (name, self._clock(), request_id)

    def read(self) -> tuple[PhaseName, float, int | None]:
        """Phase, seconds since it began, and the request it is for."""
        name, since, request_id = self._current
        return name, max(0.0, self._clock() - since), request_id
