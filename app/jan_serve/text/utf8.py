"""Decodes the bytes of tokens to whole characters."""

from __future__ import annotations

import codecs


class Utf8Decoder:
    """Incremental UTF-8 decoder: holds back an unfinished character, and nothing else.

    Invalid bytes become U+FFFD, one per maximal subpart as the Unicode standard recommends, so the joined output does
    not depend on where the bytes were cut.
    """

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
