"""Base64 as clients write it."""

from __future__ import annotations

import binascii
from typing import Final

_SPACE: Final = str.maketrans("-_", "+/", " \t\r\n")


def base64_bytes(text: str, max_bytes: int) -> bytes:
    """The bytes of base64 of either alphabet (RFC 4648), with or without line ends and padding.

    Raises ValueError with what is wrong with the file: `has more than … bytes, the limit`, before a text is decoded
    that is too long even with its line ends, or `is not encoded as base64`.
    """
    if len(text) > max_bytes // 3 * 4 * 9 // 8:
        raise ValueError(f"has more than {max_bytes} bytes, the limit")
    try:
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            text = text.translate(_SPACE).rstrip("=")
            return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:  # binascii.Error, and characters beyond ASCII
        raise ValueError("is not encoded as base64") from None
