"""Replaces halves of surrogate pairs, which JSON's grammar allows (RFC 8259, section 8.2) and UTF-8 does not.

JavaScript writes them for a text that was cut within a character; a model may write any.
"""

from __future__ import annotations

import re
from typing import Final

_HEX: Final = rb"[0-9a-fA-F]"
_HIGH: Final = rb"\\u[dD][89abAB]" + _HEX + rb"{2}"
_LOW: Final = rb"\\u[dD][c-fC-F]" + _HEX + rb"{2}"
_BACKSLASHES: Final = rb"((?<!\\)(?:\\\\)*+)"
_LONE: Final = re.compile(
    _BACKSLASHES + _HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _BACKSLASHES + _LOW
)
_REPLACEMENT: Final = rb"\ufffd"
_MOST: Final = 10_000
"""Of a text: more take too long to replace."""


def without_lone_surrogates(json_text: bytes) -> bytes:
    """The text with `\\ufffd` in place of each half pair, 10,000 at most: as long as before, so that places stay."""
    return _LONE.sub(lambda found: (found[1] or found[2] or b"") + _REPLACEMENT, json_text, _MOST)


def valid_text(text: str) -> str:
    """The text with U+FFFD in place of each half pair, and one character in place of a whole one."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
