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
"""Steps of one size before the next ones cost what this size costs: CUDA then replays a captured graph."""
_MIN_CHANGE: Final = 0.5
"""How much longer the first steps after a change take, as a share, if it is not noise."""
_MIN_CHANGES: Final = 4
"""So many first steps must agree on it."""
_MIN_SPAN: Final = 3
"""Rows between two sizes that tell the cost of a row."""


class DecodeCosts:
    """Seconds of a step of 1 to `largest` rows, learnt per number of rows.

    No simple law holds: kernels work in tiles, so nine rows may take a quarter longer than eight, and twelve hardly
    longer than nine. A common `level` follows what changes all sizes (other programs, the length of the context), so
    that sizes not seen for long stay comparable. Both are medians of five samples. A sample is dropped once its size
    has another one 24 steps later; a size that is not seen for 512 steps is unknown again.

    Where the first two steps of another size take longer, that is the cost of a change, and a size costs what the steps
    after them take.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._samples: list[deque[tuple[int, float]]] = [deque(maxlen=_SAMPLES) for _ in range(largest + 1)]
        self._cost: Seconds = np.zeros(largest + 1)
        self._seen = np.full(largest + 1, -_FORGET, np.int64)
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._level = 1.0
        self._now = 0
        self._rows = self._in_a_row = 0
        """The size of the latest steps, and how many of them there were."""
        self._is_settled = [False] * (largest + 1)
        """Whether the cost is that of steps after the first two."""
        self._excess: deque[float] = deque(maxlen=_RATIOS)
        """How much longer the first steps of a size took than the next one, as a share."""
        self._first_s: list[float] = []
        """The latest steps of that size before it settled."""

    def interrupt(self) -> None:
        """The next step follows one that was no decode."""
        self._rows = self._in_a_row = 0

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a step."""
        self._in_a_row = self._in_a_row + 1 if rows == self._rows else 1
        self._rows = rows
        self._observe_change(seconds)
        if not 0 < rows <= self.largest or seconds <= 0.0:
            return
        is_known = self._now - self._seen[rows] < _FORGET
        is_settled = self._in_a_row > _SETTLING
        if self._change and is_known and self._is_settled[rows] and not is_settled:
            return
        if (
            self._change
            and is_settled
            and not self._is_settled[rows]
            and seconds < float(self._cost[rows]) * self._level
        ):
            self._samples[rows].clear()
        elif is_known:
            self._ratios.append(seconds / float(self._cost[rows]))
            self._level = median_low(list(self._ratios)[-_SAMPLES:])
        self._is_settled[rows] = is_settled or (is_known and self._is_settled[rows])
        self._now += 1
        self._seen[rows] = self._now
        samples = self._samples[rows]
        while samples and self._now - samples[0][0] >= _RECENT:
            samples.popleft()
        samples.append((self._now, seconds / self._level))
        self._cost[rows] = median_low(sample for _, sample in samples)

    def _observe_change(self, seconds: float) -> None:
        """Compare first steps with the one after them: other sizes, or those before a prefill, tell nothing."""
        if self._in_a_row == 1:
            self._first_s.clear()
        if self._in_a_row <= _SETTLING:
            self._first_s.append(seconds)
        elif self._in_a_row == _SETTLING + 1 and seconds > 0.0:
            self._excess.extend(first_s / seconds - 1.0 for first_s in self._first_s)

    @property
    def noise(self) -> float:
        """How much the latest steps differ from what was learnt: the median of the relative differences."""
        return median_low(abs(ratio / self._level - 1.0) for ratio in self._ratios) if self._ratios else 0.0

    def change_s(self, rows: int) -> float:
        """What a step of another size adds to the steps of `rows` after it. Seconds."""
        in_a_row = min(_SETTLING, self._in_a_row) if rows == self._rows else 0
        return self._change * self.seconds(rows) * in_a_row

    def least_gain(self, rows: int) -> float:
        """How many tokens the other steps must gain to repay a change to them and back, if they last for one step."""
        seconds = self.seconds(rows)
        return rows * (self._change + self.change_s(rows) / seconds) if seconds and self._change else 0.0

    def change_back_s(self, rows: int) -> float:
        """What a change to steps of `rows` costs. Seconds."""
        return self._change * self.seconds(rows) * _SETTLING

    @property
    def captured_rows(self) -> int:
        """The size of the latest steps if another one would cost a change; otherwise 0."""
        return self._rows if self._change and self._rows <= self.largest else 0

    @property
    def _change(self) -> float:
        """How much longer each of the first steps after a change takes, as a share; 0 if that may be noise."""
        share = median_low(self._excess) if len(self._excess) >= _MIN_CHANGES else 0.0
        return share if share > _MIN_CHANGE else 0.0

    def seconds(self, rows: int) -> float:
        """Of a step of `rows`; 0 before the first measurement. Larger steps cost in proportion."""
        known = self._known()
        if not len(known):
            return 0.0
        largest, seconds = int(known[-1]), self._settled_s(known)
        if rows > largest:
            return float(seconds[-1]) * rows / largest
        return float(np.interp(rows, known, seconds))

    def _settled_s(self, known: npt.NDArray[np.int64]) -> Seconds:
        """Of the third and further steps of known sizes; assumed of sizes that have not settled yet."""
        changed = np.where(np.array(self._is_settled)[known], 1.0, 1.0 + self._change)
        return self._cost[known] * self._level / changed

    def curve(
        self,
        prefill_token_s: float,
        *,
        bounded: bool = True,
        changing_from: int | None = None,
        kept: int = 0,
    ) -> Seconds | None:
        """Seconds by number of rows, 0 to `largest`; None before the first measurement.

        Linear between recently seen sizes, and above them. bounded: infinite beyond twice the largest, so that a
        mistake costs little. changing_from: the size without drafts; others are those of a step after a change. kept:
        smaller steps are padded to so many rows. Before a second size is seen, a row is assumed to cost more than in a
        prefill (prefill_token_s) and less than in a step of its own: the geometric mean.
        """
        known = self._known()
        if not len(known):
            return None
        plain = self._between(known, self._settled_s(known), prefill_token_s)
        curve = plain.copy() if changing_from is None else plain * (1.0 + self._change)
        if bounded:
            curve[2 * max(int(known[-1]), _MIN_SPAN) + 1 :] = np.inf
        if changing_from is not None:
            curve[changing_from] = plain[changing_from]
            curve[changing_from : kept + 1] = plain[kept]
        return curve

    def _between(self, known: npt.NDArray[np.int64], seconds: Seconds, prefill_token_s: float) -> Seconds:
        """Seconds of all sizes from those of the known ones."""
        sizes = np.arange(self.largest + 1)
        curve = np.interp(sizes, known, seconds)
        smallest, largest = int(known[0]), int(known[-1])
        if largest - smallest >= _MIN_SPAN:
            row_s = max(0.0, curve[largest] - curve[smallest]) / (largest - smallest)
        else:
            row_s = np.sqrt(prefill_token_s * curve[largest] / largest)
        return curve + np.maximum(sizes - largest, 0) * row_s

    def _known(self) -> npt.NDArray[np.int64]:
        return np.nonzero(self._now - self._seen < _FORGET)[0]
