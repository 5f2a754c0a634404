"""Finds the watermark of a text by its excess of green tokens over chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from jan_serve.text.watermark import DEFAULT_GAMMA, green_tokens


def z_score(tokens: Sequence[int], n_vocab: int, gamma: float = DEFAULT_GAMMA) -> float:
    """Standard deviations above chance. The first token has no predecessor and is not counted."""
    pairs = list(pairwise(tokens))
    green = sum(bool(green_tokens(n_vocab, previous, gamma)[token]) for previous, token in pairs)
    return (green - gamma * len(pairs)) / math.sqrt(len(pairs) * gamma * (1 - gamma))
