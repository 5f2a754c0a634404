"""What steps cost just after their size changed, on a device that captures steps as graphs. Learnt from the steps."""

from __future__ import annotations

from collections import deque
from typing import Final

SETTLING: Final = 2
"""Steps of one size before CUDA replays a captured graph: the next ones cost what the size costs."""
_MIN_SHARE: Final = 0.5
"""The least share that counts. Where steps are not captured, noise makes smaller ones."""
_COMPARED: Final = 16


class SizeChanges:
    """Compares the first steps of a size with the two after them, if no other step comes between.

    share: how much longer each of the first steps takes; 0 where steps are not captured. rows: of the latest step;
    in_a_row: how many steps of that size there were.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self.rows = self.in_a_row = 0
        self._first_s: list[float] = []
        self._excess: deque[float] = deque(maxlen=_COMPARED)

    @property
    def is_settling(self) -> bool:
        """Whether the latest step was one of the first of its size, and took longer."""
        return self.share > 0.0 and self.in_a_row <= SETTLING

    def interrupt(self) -> None:
        """The next step is a first one: it follows one of another kind."""
        self.rows = self.in_a_row = 0

    def observe(self, rows: int, seconds: float) -> bool:
        """Learn from a step. Returns whether this shows that steps are captured."""
        self.in_a_row = self.in_a_row + 1 if rows == self.rows else 1
        self.rows = rows
        if self.in_a_row == 1:
            self._first_s.clear()
        if self.in_a_row <= SETTLING + 1:
            self._first_s.append(seconds)
        if self.in_a_row != SETTLING + 2:
            return False
        # The faster of two settled steps: another program may have slowed one of them.
        settled_s = min(self._first_s[-1], seconds)
        self._excess.extend(first_s / settled_s - 1.0 for first_s in self._first_s[:SETTLING])
        was_captured, self.share = self.share > 0.0, self._agreed()
        return self.share > 0.0 and not was_captured

    def _agreed(self) -> float:
        """The share on which four of four first steps agree, or five of six, or most of more."""
        count = len(self._excess)
        if count < 4:
            return 0.0
        share = sorted(self._excess)[count // 2 - 2 if count < 8 else (count - 1) // 2]
        return share if share > _MIN_SHARE else 0.0
