"""Thoughts packed as an opaque text, for clients that send back nothing else of a thought. Pure.

Nothing is encrypted: base64 with a mark of this server.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

_MARK: Final = "jan-serve:thought:"


def packed_thought(text: str) -> str:
    return _MARK + base64.b64encode(text.encode()).decode("ascii")


def unpacked_thought(packed: str | None) -> str | None:
    """The thought; None if another server packed it, or it is damaged."""
    if packed is None or not packed.startswith(_MARK):
        return None
    try:
        return base64.b64decode(packed.removeprefix(_MARK), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
