"""The cost of a step without prefill, by its number of rows, learnt from the steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from math import sqrt
from statistics import median_low
from typing import Final, TypeAlias

Curve: TypeAlias = Callable[[int], float]
"""Seconds of a step by its rows."""

_SAMPLES: Final = 5
_FEW: Final = 2
"""A size with fewer samples is compared with the last `_RATIOS` steps, and not only with `_SAMPLES` of them."""
_RATIOS: Final = 16
_RECENT: Final = 24
_FORGET: Final = 512
_SETTLING: Final = 2
"""Steps of one size before the next ones cost what this size costs: CUDA then replays a captured graph."""
_MIN_SETTLED: Final = 2
"""So many steps after those tell what a size costs, whatever disturbed one of them."""
_MIN_CHANGE: Final = 0.5
"""How much longer the first steps after a change take, as a share, if it is not noise."""
_MIN_CHANGES: Final = 4
"""So many first steps must agree on it, or five of six, or most of more."""
_TOO_CHEAP: Final = 1.1
"""A size that seems to cost less than so many times what a smaller one does is doubted."""
_TOO_DEAR: Final = 1.5
"""Or more than so many times what a smaller one does in proportion."""
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

    A size not seen lately that seems to cost hardly more than a smaller one, or far more than in proportion, is
    believed five steps later: another program may have ended or begun, which the level does not know at once.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._samples: list[deque[tuple[int, float]]] = [deque(maxlen=_SAMPLES) for _ in range(largest + 1)]
        self._cost = [0.0] * (largest + 1)
        self._seen = [-_FORGET] * (largest + 1)
        self._known: list[int] = []
        """Sizes that were seen in the last `_FORGET` steps, in order."""
        self._next_forgotten = 0
        """When one of them may have to leave."""
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._level = 1.0
        self._now = 0
        self._rows = self._in_a_row = 0
        """The size of the latest steps, and how many of them there were."""
        self._settled = [0] * (largest + 1)
        """How many of the steps that tell the cost came after the first two of their size, up to `_MIN_SETTLED`."""
        self._excess: deque[float] = deque(maxlen=_RATIOS)
        """How much longer the first steps of a size took than the faster of the next two, as a share."""
        self._run_s: list[float] = []
        """Seconds of the steps since that size began, up to the first that has settled."""
        self._first_costs: list[deque[float]] = [deque(maxlen=_SAMPLES) for _ in range(largest + 1)]
        """What the first steps of each size cost, relative to the level."""
        self._change = 0.0
        """How much longer each of the first steps after a change takes, as a share; 0 if that may be noise."""
        self._doubted: list[float] = []
        """Seconds of the doubted steps of one size."""
        self._doubted_rows = self._doubted_steps = 0
        """That size, and the steps since the first of them."""

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
        is_known = self._is_known(rows)
        is_settled = self._in_a_row > _SETTLING
        if not is_settled:
            self._first_costs[rows].append(seconds / self._level)
        if self._change and is_known and self._settled[rows] and not is_settled:
            return
        self._believe_doubted()
        is_doubted = self._is_doubtful(rows, seconds) and not (self._change and is_known and is_settled)
        is_unsure = self._settled[rows] < _MIN_SETTLED
        if self._change and is_settled and is_unsure and seconds < self._cost[rows] * self._level:
            self._samples[rows].clear()
        elif is_known:
            self._ratios.append(seconds / self._cost[rows])
            self._level = median_low(list(self._ratios)[-_SAMPLES:])
        if not is_doubted:
            self._learn(rows, seconds, is_settled=is_settled)
        elif rows == self._doubted_rows or not self._doubted:
            self._doubted_rows = rows
            self._doubted.append(seconds)

    def _is_doubtful(self, rows: int, seconds: float) -> bool:
        """Whether this size was not seen lately and seems too cheap or too dear beside a smaller one."""
        if self._is_known(rows) and self._now - self._samples[rows][-1][0] < _RECENT - 1:
            return False
        smaller = [size for size in self._known if size < rows]
        if not smaller or not self._ratios:
            return False
        smaller_s = self._cost[smaller[-1]] * self._level
        return not _TOO_CHEAP * smaller_s <= seconds <= _TOO_DEAR * smaller_s * rows / smaller[-1]

    def _believe_doubted(self) -> None:
        """Learn doubted steps once the level has followed the steps after the first of them."""
        self._doubted_steps = self._doubted_steps + 1 if self._doubted else 0
        if self._doubted_steps >= _SAMPLES:
            self._learn(self._doubted_rows, median_low(self._doubted), is_settled=False)
            self._doubted = []

    def _learn(self, rows: int, seconds: float, *, is_settled: bool) -> None:
        is_known = self._is_known(rows)
        self._settled[rows] = min(_MIN_SETTLED, (self._settled[rows] if is_known else 0) + is_settled)
        self._now += 1
        self._seen[rows] = self._now
        if not is_known or self._now >= self._next_forgotten:
            self._known = [size for size in range(self.largest + 1) if self._is_known(size)]
            self._next_forgotten = min(self._seen[size] for size in self._known) + _FORGET
        samples = self._samples[rows]
        while samples and self._now - samples[0][0] >= _RECENT:
            samples.popleft()
        level = self._level
        if len(samples) < _FEW and self._ratios:
            # Beside a few slow steps this one would look cheap, and the size would be believed cheap after them.
            level = min(level, median_low(self._ratios))
        samples.append((self._now, seconds / level))
        self._cost[rows] = median_low(sample for _, sample in samples)

    def _observe_change(self, seconds: float) -> None:
        """Compare first steps with those after them: other sizes, or those before a prefill, tell nothing.

        The faster of two is taken, since one may have been disturbed.
        """
        if self._in_a_row == 1:
            self._run_s.clear()
        if self._in_a_row <= _SETTLING + 1:
            self._run_s.append(seconds)
        elif self._in_a_row == _SETTLING + 2 and (settled_s := min(self._run_s[-1], seconds)) > 0.0:
            self._excess.extend(first_s / settled_s - 1.0 for first_s in self._run_s[:_SETTLING])
            share = self._agreed_excess()
            self._change = share if share > _MIN_CHANGE else 0.0

    def _agreed_excess(self) -> float:
        """The least of four; of six, the next; of more, the median."""
        count = len(self._excess)
        if count < _MIN_CHANGES:
            return 0.0
        few = (count - _MIN_CHANGES) // 2
        return sorted(self._excess)[few if count < 2 * _MIN_CHANGES else (count - 1) // 2]

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
    def reach(self) -> int:
        """Rows that a step with drafts may have: twice the largest size seen, so that a mistake costs little."""
        return 2 * max([_MIN_SPAN, *self._known[-1:]])

    def has_settled(self, rows: int) -> bool:
        """Whether the cost of this size is that of steps after the first two, and not of one that was disturbed."""
        return self._is_known(rows) and self._settled[rows] >= _MIN_SETTLED

    def seconds(self, rows: int) -> float:
        """Of a step of `rows`; 0 before the first measurement. Larger steps cost in proportion."""
        if self._is_known(rows):
            return self._settled_s(rows)
        known = self._known
        if known and rows > known[-1]:
            return self._settled_s(known[-1]) * rows / known[-1]
        return self._line(0.0)(rows) if known else 0.0

    def curve(self, prefill_token_s: float) -> Curve | None:
        """Linear between recently seen sizes, and above them; None before the first measurement.

        Before a second size is seen, a row is assumed to cost more than in a prefill (prefill_token_s) and less than in
        a step of its own: the geometric mean.
        """
        return self._line(prefill_token_s) if self._known else None

    def draft_curve(
        self, prefill_token_s: float, num_tokens: int, kept: int = 0, run: float = 0.0
    ) -> Curve | None:
        """As `curve`, of a step that has `num_tokens` rows without drafts; with any, it is one after a change.

        kept: the step is padded to so many rows. From there, the cost of a change to a larger size is shared by the
        steps of that size that write `run` tokens.
        """
        line = self.curve(prefill_token_s)
        if line is None or not self._change:
            return line
        kept_s = line(kept) if kept else 0.0
        sizes = [size for size in range(num_tokens + 1, self.largest + 1) if self._first_costs[size]]

        def seconds(rows: int) -> float:
            if num_tokens <= rows <= kept:
                return kept_s
            if rows == num_tokens:
                return line(rows)
            share = min(1.0, _SETTLING * rows / run) if kept and run else 1.0
            row_s = line(rows)
            return row_s + share * self._more_s(rows, row_s, sizes)

        return seconds

    def _more_s(self, rows: int, seconds: float, sizes: list[int]) -> float:
        """What a first step takes more than `seconds`: no less than one of the largest known size up to this one.

        sizes: those whose first steps were seen.
        """
        # Steps are padded to powers of two.
        index = bisect_right(sizes, 1 << (rows - 1).bit_length())
        first_s = median_low(self._first_costs[sizes[index - 1]]) * self._level if index else 0.0
        return max(self._change * seconds, first_s - seconds)

    def _line(self, prefill_token_s: float) -> Curve:
        known = self._known
        seconds = [self._settled_s(rows) for rows in known]
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

    def _settled_s(self, rows: int) -> float:
        """Of the third and further steps of a known size; assumed of one that has not settled yet."""
        seconds = self._cost[rows] * self._level
        return seconds if self._settled[rows] else seconds / (1.0 + self._change)

    def _is_known(self, rows: int) -> bool:
        return rows <= self.largest and self._now - self._seen[rows] < _FORGET
