"""Pictures for tests, decoded."""

from __future__ import annotations

import hashlib

import numpy as np

from jan_serve.core.messages import ImagePiece


def picture(seed: int = 0, width: int = 40, height: int = 30) -> ImagePiece:
    """Coarse coloured squares; another seed shows others."""
    squares = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    rows = np.arange(height) * 4 // height
    columns = np.arange(width) * 4 // width
    pixels = squares[rows][:, columns].tobytes()
    return ImagePiece(width=width, height=height, digest=hashlib.sha256(pixels).hexdigest(), pixels=pixels)


def unseen(image: ImagePiece) -> ImagePiece:
    """The same without its pixels: it can only be counted."""
    return ImagePiece(width=image.width, height=image.height, digest=image.digest)
