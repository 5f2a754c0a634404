"""Limits on the sound of one request."""

from __future__ import annotations

from typing import Final

MAX_FILE_BYTES: Final = 25 << 20
"""Size of one sound as it was sent. OpenAI's limit is the same."""

MAX_SECONDS: Final = 600
"""Length of one sound. Models take up to 750 tokens for half a minute, so longer ones would fill their contexts."""

MAX_CHANNELS: Final = 8
"""Channels of one sound; they are mixed to one."""

RATES: Final = (4_000, 192_000)
"""The least and the largest number of samples a second."""

MAX_SOUNDS: Final = 8
"""Sounds in one request."""

MAX_AMPLITUDE: Final = 1_000.0
"""Highest sample in floating point, whose full scale is 1: larger ones overflow in the encoder."""
