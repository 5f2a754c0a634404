"""Text that is no text yet: bytes of tokens, halves of surrogate pairs, and base64. JSON's grammar allows half pairs
(RFC 8259, section 8.2) and UTF-8 does not. JavaScript writes them for a text that was cut within a character; a model
may write any."""

from __future__ import annotations

import binascii
import codecs
import re
from typing import Final

_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_TO_NEXT: Final = re.compile(
    # Escapes are read whole, so that an escaped backslash begins none.
    rb"((?:[^\\]++|" + _HIGH + _LOW + rb"|\\(?:[^u]|u(?![dD][89a-fA-F])))*+)(?:" + _HIGH + b"|" + _LOW + b")",
    re.DOTALL,
)
_REPLACEMENT: Final = rb"\ufffd"
_MOST: Final = 10_000
"""Half pairs of a text: more take too long to replace."""


def without_lone_surrogates(json_text: bytes) -> bytes:
    """The text with `\\ufffd` in place of each half pair, 10,000 at most: as long as before, so that places stay."""
    parts: list[bytes] = []
    at = 0
    while len(parts) < 2 * _MOST and (found := _TO_NEXT.match(json_text, at)):
        parts += json_text[at : found.end(1)], _REPLACEMENT
        at = found.end()
    return b"".join([*parts, json_text[at:]])


def valid_text(text: str) -> str:
    """The text with U+FFFD in place of each half pair, and one character in place of a whole one."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Utf8Decoder:
    """Incremental UTF-8 decoder: holds back an unfinished character, and nothing else. Invalid bytes become U+FFFD,
    one per maximal subpart as the Unicode standard recommends, so the joined output does not depend on where the bytes
    were cut."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def feed(self, data: bytes) -> str:
        """Return the characters that `data` completes."""
        return self._decoder.decode(data)

    def finish(self, *, cut_off: bool = False) -> str:
        """End the input. An unfinished character becomes U+FFFD; with `cut_off` it is dropped instead."""
        if cut_off:
            self._decoder.reset()
        return self._decoder.decode(b"", final=True)


_TO_STANDARD: Final = str.maketrans("-_", "+/", " \t\r\n")


def base64_bytes(text: str, max_bytes: int) -> bytes:
    """The bytes of base64 of either alphabet (RFC 4648), with or without line ends and padding. Raises ValueError with
    what is wrong with the file: `has more than … bytes, the limit`, before a text is decoded that is too long even
    with its line ends, or `is not encoded as base64`."""
    if len(text) > max_bytes // 3 * 4 * 9 // 8:
        raise ValueError(f"has more than {max_bytes} bytes, the limit")
    try:
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            text = text.translate(_TO_STANDARD).rstrip("=")
            return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:  # binascii.Error, and characters beyond ASCII
        raise ValueError("is not encoded as base64") from None
