"""Runs of one escape in a string (`\\n\\n\\n…`), which a weak model would continue for ever."""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 32
"""Of one escape in a row, where anything else may follow. No valid instance of MaskBench has four."""


class EscapeRun(NamedTuple):
    """The end of an open string. escape: the one it ends with, `length` times. begun: of the next one."""

    escape: bytes = b""
    length: int = 0
    begun: bytes = b""

    def written(self, data: bytes) -> EscapeRun:
        """After more bytes of the string."""
        if not self.begun and b"\\" not in data:
            return NO_RUN if data else self
        text = self.begun + data
        escape, length, at = self.escape, self.length, 0
        while at < len(text):
            if text[at] != _BACKSLASH:
                at = text.find(b"\\", at)
                if at < 0:
                    return NO_RUN
                escape, length = b"", 0
            end = at + (6 if text[at + 1 : at + 2] == b"u" else 2)
            if end > len(text):
                return EscapeRun(escape, length, text[at:])
            found = text[at:end]
            escape, length, at = found, length + 1 if found == escape else 1, end
        return EscapeRun(escape, length)

    def rest(self) -> bytes | None:
        """What would continue a run that is as long as it may be."""
        if self.length < MOST or not self.escape.startswith(self.begun):
            return None
        return self.escape[len(self.begun) :]


NO_RUN: Final = EscapeRun()
_BACKSLASH: Final = ord("\\")
