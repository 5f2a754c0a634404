"""How long a decode step takes by its number of tokens, learnt from the steps themselves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


class StepTimes:
    """Seconds of a step of 1 to `largest` tokens, each size remembered by itself.

    There is no simple law: kernels work in tiles, so that nine tokens may take a quarter longer than eight, and twelve
    hardly longer than nine. What moves all sizes together (the length of the context, other programs) is followed by a
    common `level`, so that a size that has not come for long is still comparable.
    """

    _LEVEL_WEIGHT = 0.2
    _SIZE_WEIGHT = 0.1
    _MAX_RATIO = 2.0  # one step that something else held up must not count for many
    _FORGET = 4096

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._level = 1.0
        self._sizes: Seconds = np.zeros(largest + 1)
        self._seen = np.full(largest + 1, -self._FORGET, np.int64)
        self._now = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step of only decode took so long."""
        if not 0 < num_tokens <= self.largest or seconds <= 0.0:
            return
        self._now += 1
        if not self._is_known(num_tokens):
            self._sizes[num_tokens] = seconds / self._level
        else:
            ratio = seconds / (self._level * float(self._sizes[num_tokens]))
            ratio = min(self._MAX_RATIO, max(1.0 / self._MAX_RATIO, ratio))
            self._level *= ratio**self._LEVEL_WEIGHT
            self._sizes[num_tokens] *= ratio**self._SIZE_WEIGHT
        self._seen[num_tokens] = self._now

    def _is_known(self, num_tokens: int) -> bool:
        return bool(self._now - self._seen[num_tokens] < self._FORGET)

    def curve(self, prefill_token_s: float) -> Seconds | None:
        """Seconds by number of tokens, 0 to `largest`; None before anything was seen.

        Between sizes that came lately a line; above them a token costs what it does in a prefill, until one is tried.
        """
        (known,) = np.nonzero(self._now - self._seen < self._FORGET)
        if not len(known):
            return None
        sizes = np.arange(self.largest + 1)
        curve = np.interp(sizes, known, self._sizes[known]) * self._level
        above = np.maximum(sizes - known[-1], 0)
        return curve + above * prefill_token_s
