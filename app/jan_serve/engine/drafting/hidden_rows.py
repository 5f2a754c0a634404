"""The latest hidden states of a sequence, which its head reads."""

from __future__ import annotations

from typing import Final

import numpy as np

from jan_serve.engine.llama.context import Floats

WINDOW: Final = 256
"""Tokens back that are kept, at least."""


class HiddenRows:
    """Rows of positions `start` to `end`-1, the oldest of which are dropped."""

    def __init__(self, width: int) -> None:
        self.start: int = 0
        self.end: int = 0
        self._rows: Floats = np.empty((2 * WINDOW, width), np.float32)

    def append(self, position: int, rows: Floats) -> None:
        """Copy the rows from `position` on. Rows that end before it are of no use any more."""
        if position != self.end:
            self.start = self.end = position
        if len(rows) >= WINDOW:
            self.start = self.end = position + len(rows) - WINDOW
            rows = rows[-WINDOW:]
        held = self.end - self.start
        if held + len(rows) > len(self._rows):
            keep = WINDOW - len(rows)
            self._rows[:keep] = self._rows[held - keep : held].copy()
            self.start, held = self.end - keep, keep
        self._rows[held : held + len(rows)] = rows
        self.end += len(rows)

    def view(self, first: int, end: int) -> Floats:
        """Rows of positions first … end-1, all of which must be held."""
        return self._rows[first - self.start : end - self.start]
