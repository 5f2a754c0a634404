"""Texts packed as an opaque one, for clients that send back nothing else of them. Pure.

Nothing is encrypted: base64 with a mark of this server.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec


class PackedTexts(msgspec.Struct, frozen=True):
    """Packs and unpacks texts of one kind, which `mark` names."""

    mark: str

    def packed(self, text: str) -> str:
        return self.mark + base64.b64encode(text.encode()).decode("ascii")

    def unpacked(self, packed: str | None) -> str | None:
        """The text; None if another server packed it, or it is damaged."""
        if packed is None or not packed.startswith(self.mark):
            return None
        try:
            return base64.b64decode(packed.removeprefix(self.mark), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None


THOUGHT: Final = PackedTexts("jan-serve:thought:")
UNREAD_THOUGHT: Final = "a thought that this server cannot read is left out"
SUMMARY: Final = PackedTexts("jan-serve:summary:")
