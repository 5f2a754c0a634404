"""Penalties of tokens that the text has already, as llama.cpp computes them."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from jan_serve.core.request import SamplingParams

_MAX_LOGIT: Final = np.float32(1e30)
"""Beyond any real logit: one that is not finite means a damaged model."""


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty would change a logit."""
    return params.repeat_last_n != 0 and (
        params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    )


class Penalties:
    """Lowers the logits of the last `repeat_last_n` tokens, or raises them if a penalty is negative."""

    def __init__(self, params: SamplingParams, n_ctx: int) -> None:
        """n_ctx: no sequence is longer, so the window is not either."""
        window = n_ctx if params.repeat_last_n < 0 else min(params.repeat_last_n, n_ctx)
        self._recent = deque[int](maxlen=window)
        self._counts: dict[int, int] = {}
        self._repeat = np.float32(params.repeat_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._adds = bool(self._frequency or self._presence)

    def observe(self, token: int) -> None:
        """Count a token of the prompt or the completion."""
        counts = self._counts
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            counts[oldest] -= 1
            if not counts[oldest]:
                del counts[oldest]
        counts[token] = counts.get(token, 0) + 1
        self._recent.append(token)

    def apply(self, logits: npt.NDArray[np.float32]) -> None:
        """Change the logits of the counted tokens in place. Shape (n_vocab,)."""
        ids = np.fromiter(self._counts, np.intp, len(self._counts))
        values = logits[ids]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            values = np.where(values <= 0, values * self._repeat, values / self._repeat)
        if self._adds:
            counts = np.fromiter(self._counts.values(), np.float32, len(ids))
            values -= counts * self._frequency + self._presence
        logits[ids] = np.minimum(values, _MAX_LOGIT)
