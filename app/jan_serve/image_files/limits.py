"""Limits on the images of one request, and the size at which a model gets to see them."""

from __future__ import annotations

from math import sqrt
from typing import Final

MAX_FILE_BYTES: Final = 20 << 20
"""Size of one image as it was sent. OpenAI's limit is the same."""

MAX_PIXELS: Final = 32_000_000
"""Pixels of one image. Photographs of phones have 12 to 24 million; decoding takes 4 bytes a pixel, several times."""

MAX_RATIO: Final = 200
"""Ratio of the longer to the shorter side. libmtmd ends the worker where it cannot cut such strips into patches."""

MAX_IMAGES: Final = 64
"""Images in one request: an agent sends all screenshots of its session each time."""

MAX_FILES_BYTES: Final = 16 * MAX_FILE_BYTES
"""Size of all images of a request. Those fetched from other hosts are not in its body, which has a limit too."""

MAX_SHOWN_PIXELS: Final = 1 << 22
"""Larger images are reduced to this before they go to the worker; no known projector takes in as much."""

MAX_SHOWN_TOGETHER: Final = 16 * MAX_SHOWN_PIXELS
"""Pixels of all images of one request: 192 MiB of pixels."""

MIN_SHOWN_SIDE: Final = 8
"""Smaller images are enlarged to this: projectors assume sides of some pixels, and assert it."""


def shown_pixels(images: int) -> int:
    """Pixels of one image among so many of a request.

    They are halved rather than shared out: as a conversation grows, most images add none of another size to its cache.
    """
    pixels = MAX_SHOWN_PIXELS
    while images * pixels > MAX_SHOWN_TOGETHER:
        pixels //= 2
    return pixels


def shown_size(width: int, height: int, most_pixels: int = MAX_SHOWN_PIXELS) -> tuple[int, int]:
    """Width and height at which the model sees an image within the limits; the same ratio as far as pixels allow."""
    scale = min(1.0, sqrt(most_pixels / (width * height)))
    scale = max(scale, MIN_SHOWN_SIDE / min(width, height))
    return max(MIN_SHOWN_SIDE, int(width * scale)), max(MIN_SHOWN_SIDE, int(height * scale))
