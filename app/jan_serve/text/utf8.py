"""Bytes of tokens to whole characters."""

from __future__ import annotations

import codecs


class Utf8Decoder:
    """Incremental UTF-8: holds back the start of an unfinished character, and nothing else.

    Bytes that can never become a character turn into U+FFFD, as the Unicode standard recommends (one per maximal
    subpart), so joined output never depends on where the bytes were cut.
    """

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bool:
        """Whether an unfinished character is held back."""
        return bool(self._decoder.getstate()[0])

    def feed(self, data: bytes) -> str:
        """Return the characters that `data` completes."""
        return self._decoder.decode(data)

    def finish(self, *, cut_off: bool = False) -> str:
        """End of input: an unfinished character becomes U+FFFD, or nothing where it was `cut_off` and would go on."""
        if cut_off:
            self._decoder.reset()
        return self._decoder.decode(b"", final=True)
