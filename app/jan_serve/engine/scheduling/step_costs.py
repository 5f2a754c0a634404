"""StepCosts learns from the steps what each kind of step costs, in seconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable
from math import sqrt
from statistics import median_low
from typing import Final, TypeAlias

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


Curve: TypeAlias = Callable[[int], float]  # seconds of a step by its rows

_SAMPLES: Final = 5
_RECENT: Final = 24  # steps after which a newer sample of its size replaces a sample
_LAG: Final = 3
"""Steps that are seen before one is learnt: the level knows only then that another program began or ended beside it."""
_RATIOS: Final = 16  # steps that tell the noise
_MIN_SPAN: Final = 3  # rows between two sizes that tell the cost of a row


class DecodeCosts:
    """Seconds of a step of 1 to `largest` rows, learnt per number of rows.

    No simple law holds: kernels work in tiles, so nine rows may take a quarter longer than eight, and twelve hardly
    longer than nine. A common `level` follows what changes all sizes (other programs, the length of the context), so
    that sizes not seen for long stay comparable. Both are medians of five samples."""

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
        changes = self._changes
        is_first = changes.share > 0.0 and changes.in_a_row <= SETTLING  # of its size, and took longer
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
        """Linear between known sizes, and above them; None before the first measurement. Before a second size is seen,
        a row is assumed to cost more than in a prefill (prefill_token_s) and less than in a step of its own: the
        geometric mean."""
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


_Samples: TypeAlias = (
    "defaultdict[int, deque[tuple[int, float]]]"  # the number of the step and its cost, by size
)


def _no_samples() -> _Samples:
    return defaultdict(lambda: deque(maxlen=_SAMPLES))


def _median(samples: deque[tuple[int, float]]) -> float:
    return median_low(sample for _, sample in samples)


LARGEST_DECODE: Final = 64  # rows of the largest step without prefill whose cost is learnt by itself

TILE: Final = 64  # rows of a prefill from which on larger ones save little
PART: Final = 32
"""The fewest tokens of a prompt that are read for their own sake: half of them would take almost as long.

Fewer say nothing about the cost of a token.
"""
_WEIGHT: Final = 0.25
_MAX_RATIO: Final = 2.0
"""How many times its estimate a measurement counts at most: limits what one slow step says."""
_MIN_GAIN: Final = 0.1
_RETRY: Final = 256
"""Prefills without streams after which a mixed step is tried again: another program may have slowed the last one."""


class StepCosts:
    """Steps that only decode, a token of those that only prefill, and how much a step saves that does both.

    decode: of the first kind. `observe` alone adds to it.
    prefill_token_s: seconds; 0 before the first measurement.
    """

    def __init__(self) -> None:
        self.decode = DecodeCosts(LARGEST_DECODE)
        self.prefill_token_s = 0.0
        self._num_prefills = 0
        self._mixed: float | None = None
        """The time of a mixed step over that of two steps, on average; None: not tried."""
        self._num_apart = 0

    def decode_s(self, rows: int) -> float:
        """Seconds of a step that decodes `rows` tokens; 0 before the first measurement."""
        return self.decode.seconds(rows)

    def observe(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        """Learn from a step with these numbers of decode and prefill rows."""
        if not num_prefill:
            self.decode.observe(num_decode, seconds)
            return
        self.decode.interrupt()
        if not num_decode:
            self._num_apart += 1
            if num_prefill >= PART:
                self._observe_prefill(seconds / num_prefill)
        elif apart_s := self._apart_s(num_decode, num_prefill):
            ratio = min(seconds / apart_s, _MAX_RATIO)
            if self._mixed is not None and self._num_apart < _RETRY:
                ratio = self._mixed + _WEIGHT * (ratio - self._mixed)
            self._mixed = ratio
            self._num_apart = 0

    def _observe_prefill(self, token_s: float) -> None:
        known_s, self._num_prefills = self.prefill_token_s, self._num_prefills + 1
        # The first prompt may have read the weights from disk: a faster second one replaces what it said.
        if not known_s or (self._num_prefills == 2 and token_s < known_s):
            self.prefill_token_s = token_s
        else:
            self.prefill_token_s += _WEIGHT * (min(token_s, _MAX_RATIO * known_s) - known_s)

    def mixing_pays(self, num_decode: int, num_prefill: int) -> bool:
        """Whether one step saves a tenth of the time of two, beyond noise; after many steps apart, whether it might."""
        if not self._apart_s(num_decode, num_prefill):
            return False
        most = 1.0 - _MIN_GAIN - self.decode.noise
        return self._mixed is None or self._mixed <= most or self._num_apart >= _RETRY

    def _apart_s(self, num_decode: int, num_prefill: int) -> float:
        """Seconds of two steps; 0 while one of them is not known."""
        prefill_s = num_prefill * self.prefill_token_s
        decode_s = self.decode_s(num_decode)
        return prefill_s + decode_s if prefill_s and decode_s else 0.0
