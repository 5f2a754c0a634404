"""The cost of a step without prefill, by its number of rows, learnt from the steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable
from math import sqrt
from statistics import median_low
from typing import Final, TypeAlias

from jan_serve.engine.scheduling.size_changes import SETTLING, SizeChanges

Curve: TypeAlias = Callable[[int], float]
"""Seconds of a step by its rows."""

_SAMPLES: Final = 5
_RECENT: Final = 24
"""Steps after which a newer sample of its size replaces a sample."""
_LAG: Final = 3
"""Steps that are seen before one is learnt: the level knows only then that another program began or ended beside it."""
_RATIOS: Final = 16
"""Steps that tell the noise."""
_MIN_SPAN: Final = 3
"""Rows between two sizes that tell the cost of a row."""


class DecodeCosts:
    """Seconds of a step of 1 to `largest` rows, learnt per number of rows.

    No simple law holds: kernels work in tiles, so nine rows may take a quarter longer than eight, and twelve hardly
    longer than nine. A common `level` follows what changes all sizes (other programs, the length of the context), so
    that sizes not seen for long stay comparable. Both are medians of five samples.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._now = self._largest_seen = 0
        self._level = 1.0
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._changes = SizeChanges()
        self._pending: deque[tuple[int, float, bool]] = deque()
        # Samples by size, relative to the level: of all steps, or of settled and first ones where steps are captured.
        self._samples, self._firsts = _no_samples(), _no_samples()
        self._cost: dict[int, float] = {}
        self._known: list[int] = []

    def interrupt(self) -> None:
        """The next step follows one that was no decode."""
        self._changes.interrupt()

    def observe(self, rows: int, seconds: float) -> None:
        if not 0 < rows <= self.largest or seconds <= 0.0:
            self.interrupt()
            return
        self._now += 1
        self._largest_seen = max(self._largest_seen, rows)
        if self._changes.observe(rows, seconds):
            # Most of what was seen so far were first steps of their size.
            self._firsts, self._samples = self._samples, _no_samples()
        is_first = self._changes.is_settling
        if not is_first and rows in self._samples:
            self._ratios.append(seconds / self._cost[rows])
            self._level = median_low(list(self._ratios)[-_SAMPLES:])
        # A size that is tried just when another program ends would look several times cheaper than it is. What is
        # believed of it would then keep the level where it was, and all other sizes would look expensive.
        self._pending.append((rows, seconds, is_first))
        while len(self._pending) > (0 if self._changes.share or not self._cost else _LAG):
            self._learn(*self._pending.popleft())

    def _learn(self, rows: int, seconds: float, is_first: bool) -> None:
        samples = (self._firsts if is_first else self._samples)[rows]
        while samples and self._now - samples[0][0] >= _RECENT:
            samples.popleft()
        samples.append((self._now, seconds / self._level))
        if not is_first:
            self._cost[rows] = _median(samples)
        elif rows not in self._samples:
            self._cost[rows] = _median(samples) / (1.0 + self._changes.share)
        self._known = sorted(self._cost)

    @property
    def noise(self) -> float:
        """How much the latest steps differ from what was learnt: the median of the relative differences."""
        return median_low(abs(ratio / self._level - 1.0) for ratio in self._ratios) if self._ratios else 0.0

    @property
    def reach(self) -> int:
        """Rows that a step with drafts may have: twice the largest size seen, so that a mistake costs little."""
        return 2 * max(_MIN_SPAN, self._largest_seen)

    def seconds(self, rows: int) -> float:
        """Seconds of a step of `rows`; 0 before the first measurement. Larger steps cost in proportion."""
        if rows in self._cost:
            return self._cost[rows] * self._level
        known = self._known
        if known and rows > known[-1]:
            return self._cost[known[-1]] * self._level * rows / known[-1]
        return self._line(0.0)(rows) if known else 0.0

    def curve(self, prefill_token_s: float) -> Curve | None:
        """Linear between known sizes, and above them; None before the first measurement.

        Before a second size is seen, a row is assumed to cost more than in a prefill (prefill_token_s) and less than in
        a step of its own: the geometric mean.
        """
        return self._line(prefill_token_s) if self._known else None

    def _line(self, prefill_token_s: float) -> Curve:
        known = self._known
        seconds = [self._cost[rows] * self._level for rows in known]
        smallest, largest = known[0], known[-1]
        if largest - smallest >= _MIN_SPAN:
            row_s = max(0.0, seconds[-1] - seconds[0]) / (largest - smallest)
        else:
            row_s = sqrt(prefill_token_s * seconds[-1] / largest)

        def line(rows: int) -> float:
            if rows >= largest:
                return seconds[-1] + (rows - largest) * row_s
            index = bisect_left(known, rows)
            if index == 0 or known[index] == rows:
                return seconds[index]
            low, high = known[index - 1], known[index]
            share = (rows - low) / (high - low)
            return seconds[index - 1] + share * (seconds[index] - seconds[index - 1])

        return line

    # Captured steps. Where there are none, a change costs nothing.

    @property
    def captured_rows(self) -> int:
        """The size of the latest steps if another one would cost a change; otherwise 0."""
        return self._changes.rows if self._changes.share else 0

    def has_settled(self, rows: int) -> bool:
        """Whether its cost is that of settled steps, and not of a single one, which may have been disturbed."""
        return len(self._samples.get(rows, ())) > 1

    def change_s(self, rows: int, steps: int = SETTLING) -> float:
        """Seconds that a change adds to the first `steps` steps of `rows`."""
        return self._changes.share * self.seconds(rows) * steps

    def way_back_s(self, rows: int) -> float:
        """Seconds that one step of another size adds to the steps of `rows` after it."""
        is_latest = rows == self._changes.rows
        return self.change_s(rows, min(SETTLING, self._changes.in_a_row)) if is_latest else 0.0

    def least_gain(self, rows: int) -> float:
        """Tokens that a step of another size must gain to repay the change to it and back."""
        seconds = self.seconds(rows)
        return rows * (self._changes.share + self.way_back_s(rows) / seconds) if seconds else 0.0

    def draft_curve(
        self, prefill_token_s: float, num_tokens: int, kept: int = 0, run: float = 0.0
    ) -> Curve | None:
        """Curve of a step that has `num_tokens` rows without drafts; with drafts it is one after a change.

        kept: the step is padded to so many rows. From there, the cost of a change to a larger size is shared by the
        steps of that size that write `run` tokens.
        """
        line = self.curve(prefill_token_s)
        if line is None or not self._changes.share:
            return line
        kept_s = line(kept) if kept else 0.0
        sizes = sorted(size for size in self._firsts if size > num_tokens)

        def seconds(rows: int) -> float:
            if num_tokens <= rows <= kept:
                return kept_s
            row_s = line(rows)
            if rows == num_tokens:
                return row_s
            # A first step costs no less than one of a smaller size did.
            index = bisect_right(sizes, rows)
            first_s = _median(self._firsts[sizes[index - 1]]) * self._level if index else 0.0
            share = min(1.0, SETTLING * rows / run) if kept and run else 1.0
            return row_s + share * max(self._changes.share * row_s, first_s - row_s)

        return seconds


_Samples: TypeAlias = "defaultdict[int, deque[tuple[int, float]]]"
"""The number of the step and its cost, by size."""


def _no_samples() -> _Samples:
    return defaultdict(lambda: deque(maxlen=_SAMPLES))


def _median(samples: deque[tuple[int, float]]) -> float:
    return median_low(sample for _, sample in samples)
