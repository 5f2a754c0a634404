"""Base64 as clients write it."""

from __future__ import annotations

import binascii
from typing import Final

_SPACE: Final = str.maketrans("-_", "+/", " \t\r\n")


def base64_bytes(text: str) -> bytes:
    """The bytes of base64 of either alphabet (RFC 4648), with or without line ends and padding. Raises ValueError."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        text = text.translate(_SPACE).rstrip("=")
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
