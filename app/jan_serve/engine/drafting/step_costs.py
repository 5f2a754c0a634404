"""The cost of a step without prefill, by its number of tokens, learnt from the steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


class StepCosts:
    """Seconds of a step of 1 to `largest` tokens, learnt per size.

    No simple law holds: kernels work in tiles, so nine tokens may take a quarter longer than eight, and twelve hardly
    longer than nine. A common `level` follows changes of all sizes (context length, other programs), so that sizes not
    seen for long stay comparable.
    """

    _LEVEL_WEIGHT = 0.2
    _SIZE_WEIGHT = 0.1
    _FIRST_WEIGHT = 0.8
    # Limits the weight of one slow step.
    _MAX_RATIO = 1.5
    _FORGET = 512

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._level = 1.0
        self._sizes: Seconds = np.zeros(largest + 1)
        self._seen = np.full(largest + 1, -self._FORGET, np.int64)
        self._now = 0

    def observe(self, num_tokens: int, seconds: float, prefill_token_s: float) -> None:
        """Learn from a step. prefill_token_s: see `curve`."""
        if not 0 < num_tokens <= self.largest or seconds <= 0.0:
            return
        known = self._is_known(num_tokens)
        curve = None if known else self.curve(prefill_token_s)
        self._now += 1
        self._seen[num_tokens] = self._now
        if not known and curve is None:
            self._sizes[num_tokens] = seconds / self._level
            return
        expected = float(self._sizes[num_tokens] * self._level if curve is None else curve[num_tokens])
        ratio = min(self._MAX_RATIO, max(1.0 / self._MAX_RATIO, seconds / expected))
        if known:
            self._sizes[num_tokens] *= ratio**self._SIZE_WEIGHT
            self._level *= ratio**self._LEVEL_WEIGHT
        else:
            self._sizes[num_tokens] = expected / self._level * ratio**self._FIRST_WEIGHT

    def _is_known(self, num_tokens: int) -> bool:
        return bool(self._now - self._seen[num_tokens] < self._FORGET)

    def curve(self, prefill_token_s: float) -> Seconds | None:
        """Seconds by number of tokens, 0 to `largest`; None before the first measurement.

        Linear between recently seen sizes. Above them a token costs more than in a prefill (prefill_token_s) and less
        than in the largest of them: the geometric mean, until a larger one is tried.
        """
        (known,) = np.nonzero(self._now - self._seen < self._FORGET)
        if not len(known):
            return None
        sizes = np.arange(self.largest + 1)
        curve = np.interp(sizes, known, self._sizes[known]) * self._level
        largest = int(known[-1])
        token_s = float(np.sqrt(prefill_token_s * curve[largest] / largest))
        return curve + np.maximum(sizes - largest, 0) * token_s
