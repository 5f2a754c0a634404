"""The watermark of Kirchenbauer et al. (2023, "A Watermark for Large Language Models"), as Text Generation Inference
makes it on a CPU: the token before decides which half of the vocabulary is "green", and green tokens are preferred.

The green tokens are the first of a permutation of the vocabulary: MT19937 seeded with the low 32 bits of
15485863 times the token before, and a Fisher-Yates shuffle from the front, as `torch.randperm` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

DEFAULT_GAMMA: Final = 0.5
"""Share of the vocabulary that is green."""
DEFAULT_DELTA: Final = 2.0
"""What is added to the logits of green tokens."""

_HASH_KEY: Final = 15_485_863
_SEEDS: Final = 0xFFFFFFFF
_REMEMBERED: Final = 512


def green_tokens(n_vocab: int, previous: int, gamma: float = DEFAULT_GAMMA) -> Mask:
    """Which tokens are green behind the token `previous`. Shape (n_vocab,).

    n_vocab: the width of the logits. Takes about 2 ms for 150 000 tokens, unless it was asked for lately.
    """
    packed = _packed_green_tokens(n_vocab, previous, gamma)
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=n_vocab).view(np.bool_)


@lru_cache(maxsize=_REMEMBERED)
def _packed_green_tokens(n_vocab: int, previous: int, gamma: float) -> bytes:
    """A bit a token, so that many of them can be remembered."""
    return np.packbits(_shuffled_front(n_vocab, _HASH_KEY * previous, int(n_vocab * gamma))).tobytes()


def _shuffled_front(size: int, seed: int, count: int) -> Mask:
    """The set of the first `count` entries of the permutation of 0..size-1 that belongs to the seed.

    Step i of the shuffle swaps position i with a later position. What ends at a position behind the front was put there
    by the last step that hit it, which took it from its own position, where the last earlier step that hit that one
    had put it, and so on: all of these chains are followed at once, instead of making the swaps one after the other.
    """
    ids, choices = _constants(size, count)
    draws = np.random.RandomState(seed & _SEEDS).randint(0, 1 << 32, size=count, dtype=np.uint32)
    # The remainder by way of float64, which holds 32-bit integers exactly and divides them faster.
    distances = draws.astype(np.float64)
    distances -= np.floor(distances / choices) * choices
    targets = distances.astype(np.int32)
    idle = np.flatnonzero(targets == 0)
    targets += ids[:count]
    source = ids.copy()
    source[targets] = ids[:count]  # where a position is hit several times, the last step remains
    for step in idle.tolist():  # hit itself, which moves nothing: one or two of all
        earlier = np.flatnonzero(targets[:step] == step)
        source[step] = earlier[-1] if len(earlier) else step
    front = source[:count]
    while not np.array_equal(front, farther := front.take(front)):
        front = farther
    source[:count] = front
    green = np.ones(size, np.bool_)
    green[source.take(source[count:])] = False
    return green


@lru_cache(maxsize=8)
def _constants(size: int, count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """The ids, and among how many positions each step chooses."""
    return np.arange(size, dtype=np.int32), np.arange(size, size - count, -1, dtype=np.float64)


class Detection(NamedTuple):
    """How far green tokens of a text outnumber what chance would give.

    scored: tokens that were looked at. green: how many of them are. z: standard deviations above chance.
    p: the probability of as many green tokens in a text without the mark (one-sided).
    """

    scored: int
    green: int
    z: float
    p: float


def detect(
    tokens: Sequence[int], n_vocab: int, *, gamma: float = DEFAULT_GAMMA, unique: bool = False
) -> Detection:
    """Score a text against its own token pairs. The first token has none before it and is not counted.

    unique: every pair counts once, since a text that repeats itself repeats its green tokens too. Raises ValueError for
    fewer than two tokens, and for gamma outside of 0 to 1.
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma: {gamma} is not between 0 and 1")
    pairs = list(pairwise(tokens))
    if unique:
        pairs = list(dict.fromkeys(pairs))
    if not pairs:
        raise ValueError("a text of fewer than two tokens cannot be scored")
    green = sum(bool(green_tokens(n_vocab, previous, gamma)[token]) for previous, token in pairs)
    scored = len(pairs)
    z = (green - gamma * scored) / math.sqrt(scored * gamma * (1 - gamma))
    return Detection(scored, green, z, 0.5 * math.erfc(z / math.sqrt(2)))
