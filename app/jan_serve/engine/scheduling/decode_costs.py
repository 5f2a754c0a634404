"""The cost of a step without prefill, by its number of rows, learnt from the steps."""

from __future__ import annotations

from collections import deque
from statistics import median_low
from typing import Final

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

_SAMPLES: Final = 5
_RATIOS: Final = 16
_RECENT: Final = 24
_FORGET: Final = 512
_SETTLING: Final = 2
"""Steps of one size before the next ones cost what this size costs: CUDA then replays a recorded graph."""
_MIN_CHANGE: Final = 0.5
"""How much longer the first steps after a change take, as a share, if it is not noise."""
_MIN_CHANGES: Final = 4
"""First steps that tell it."""
_MIN_SPAN: Final = 3
"""Rows between two sizes that tell the cost of a row."""


class DecodeCosts:
    """Seconds of a step of 1 to `largest` rows, learnt per number of rows.

    No simple law holds: kernels work in tiles, so nine rows may take a quarter longer than eight, and twelve hardly
    longer than nine. A common `level` follows what changes all sizes (other programs, the length of the context), so
    that sizes not seen for long stay comparable. Both are medians of five samples. A sample is dropped once its size
    has another one 24 steps later; a size that is not seen for 512 steps is unknown again.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._samples: list[deque[tuple[int, float]]] = [deque(maxlen=_SAMPLES) for _ in range(largest + 1)]
        self._sizes: Seconds = np.zeros(largest + 1)
        self._seen = np.full(largest + 1, -_FORGET, np.int64)
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._level = 1.0
        self._now = 0
        self._rows = self._in_a_row = 0
        self._is_settled = [False] * (largest + 1)
        self._excess: deque[float] = deque(maxlen=_RATIOS)

    def interrupt(self) -> None:
        """The next step follows one that was no decode."""
        self._rows = self._in_a_row = 0

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a step."""
        self._in_a_row = self._in_a_row + 1 if rows == self._rows else 1
        self._rows = rows
        if not 0 < rows <= self.largest or seconds <= 0.0:
            return
        is_known = self._now - self._seen[rows] < _FORGET
        is_settled = self._in_a_row > _SETTLING
        if is_known and self._is_settled[rows] and not is_settled:
            self._excess.append(seconds / self._level / float(self._sizes[rows]) - 1.0)
            if self._change:
                return
        if (
            self._change
            and is_settled
            and not self._is_settled[rows]
            and seconds < float(self._sizes[rows]) * self._level
        ):
            self._samples[rows].clear()
        elif is_known:
            self._ratios.append(seconds / float(self._sizes[rows]))
            self._level = median_low(list(self._ratios)[-_SAMPLES:])
        self._is_settled[rows] = is_settled or (is_known and self._is_settled[rows])
        self._now += 1
        self._seen[rows] = self._now
        samples = self._samples[rows]
        while samples and self._now - samples[0][0] >= _RECENT:
            samples.popleft()
        samples.append((self._now, seconds / self._level))
        self._sizes[rows] = median_low(sample for _, sample in samples)

    @property
    def noise(self) -> float:
        """How much the latest steps differ from what was learnt: the median of the relative differences."""
        return median_low(abs(ratio / self._level - 1.0) for ratio in self._ratios) if self._ratios else 0.0

    def change_s(self, rows: int) -> float:
        """What a step of another size adds to the steps of `rows` after it. Seconds."""
        in_a_row = min(_SETTLING, self._in_a_row) if rows == self._rows else 0
        return self._change * self.seconds(rows) * in_a_row

    @property
    def _change(self) -> float:
        """How much longer each of the first steps after a change takes, as a share; 0 if that may be noise."""
        share = median_low(self._excess) if len(self._excess) >= _MIN_CHANGES else 0.0
        return share if share > _MIN_CHANGE else 0.0

    def seconds(self, rows: int) -> float:
        """Of a step of `rows`; 0 before the first measurement. Larger steps cost in proportion."""
        if rows <= self.largest and self._now - self._seen[rows] < _FORGET:
            return float(self._sizes[rows]) * self._level
        known = self._known()
        if not len(known):
            return 0.0
        largest = int(known[-1])
        if rows > largest:
            return float(self._sizes[largest]) * self._level * rows / largest
        return float(np.interp(rows, known, self._sizes[known])) * self._level

    def curve(
        self, prefill_token_s: float, *, bounded: bool = True, changing_from: int | None = None
    ) -> Seconds | None:
        """Seconds by number of rows, 0 to `largest`; None before the first measurement.

        Linear between recently seen sizes, and above them. bounded: infinite beyond twice the largest, so that a
        mistake costs little. changing_from: the size of the steps so far; other sizes are those of a step after a
        change. Before a second size is seen, a row is assumed to cost more than in a prefill (prefill_token_s) and less
        than in a step of its own: the geometric mean.
        """
        known = self._known()
        if not len(known):
            return None
        sizes = np.arange(self.largest + 1)
        seconds = self._sizes[known] * self._level
        if changing_from is not None:
            seconds *= 1.0 + self._change * np.array(self._is_settled)[known]
        curve = np.interp(sizes, known, seconds)
        smallest, largest = int(known[0]), int(known[-1])
        if largest - smallest >= _MIN_SPAN:
            row_s = max(0.0, curve[largest] - curve[smallest]) / (largest - smallest)
        else:
            row_s = np.sqrt(prefill_token_s * curve[largest] / largest)
        curve += np.maximum(sizes - largest, 0) * row_s
        if bounded:
            curve[2 * max(largest, _MIN_SPAN) + 1 :] = np.inf
        if changing_from is not None:
            curve[changing_from] = self.seconds(changing_from)
        return curve

    def _known(self) -> npt.NDArray[np.int64]:
        return np.nonzero(self._now - self._seen < _FORGET)[0]
