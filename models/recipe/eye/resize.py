"""Resizes pictures exactly as libmtmd does: Pillow's bicubic filter in fixed point, to a square without bars.

Source: llama.cpp, ``tools/mtmd/mtmd-image.cpp`` (``img_tool::resize``, itself after Pillow's ``Resample.c``).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
_SUPPORT = 2.0
_BITS = 22


def fitted(pixels: Pixels, size: int) -> Pixels:
    """A picture of any size (height, width, 3) as ``size`` by ``size``."""
    rows = pixels if pixels.shape[1] == size else _along(pixels.transpose(1, 0, 2), size).transpose(1, 0, 2)
    return rows if rows.shape[0] == size else _along(rows, size)


def _along(pixels: Pixels, size: int) -> Pixels:
    """The first axis at another size."""
    length = pixels.shape[0]
    flat = pixels.reshape(length, -1).astype(np.float64)
    total = _weights(length, size) @ flat  # whole numbers below 2**53: exact
    rounded = np.floor((total + 2 ** (_BITS - 1)) / 2**_BITS)
    return np.clip(rounded, 0, 255).astype(np.uint8).reshape(size, *pixels.shape[1:])


@lru_cache(maxsize=512)
def _weights(length: int, size: int) -> NDArray[np.float64]:
    """The (size, length) matrix of fixed-point weights."""
    scale = length / size
    widened = max(scale, 1.0)
    support = _SUPPORT * widened
    matrix = np.zeros((size, length))
    for row in range(size):
        centre = (row + 0.5) * scale
        start = max(0, int(centre - support + 0.5))
        stop = min(length, int(centre + support + 0.5))
        weights = [_cubic((index - centre + 0.5) / widened) for index in range(start, stop)]
        total = math.fsum(weights)
        for index, weight in zip(range(start, stop), weights, strict=True):
            fixed = weight / total * 2**_BITS
            matrix[row, index] = int(fixed + math.copysign(0.5, fixed))
    return matrix


def _cubic(x: float) -> float:
    """The cubic of Keys (1981) with a = -0.5."""
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2 else 0.0
