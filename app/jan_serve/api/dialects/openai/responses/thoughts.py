"""Thoughts as `encrypted_content`, for clients that send nothing else of a thought back (Codex). Pure.

Nothing is encrypted: it is the client's own model's thought, in a form that says where it came from.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

_MARK: Final = "jan-serve:thought:"


def packed_thought(text: str) -> str:
    """The thought as an opaque text."""
    return _MARK + base64.b64encode(text.encode()).decode("ascii")


def unpacked_thought(packed: str | None) -> str | None:
    """What `packed_thought` was given; None for what another server made, or what is damaged."""
    if packed is None or not packed.startswith(_MARK):
        return None
    try:
        return base64.b64decode(packed.removeprefix(_MARK), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
