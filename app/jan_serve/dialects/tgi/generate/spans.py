"""The bytes of a text that each token covers, in TGI's form. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jan_serve.dialects.tgi.generate.wire import SimpleToken

_SPACES: Final = re.compile(rb"\s*")


def spans(text: str, tokens: Sequence[int], pieces: Sequence[bytes]) -> list[SimpleToken]:
    """The bytes of the text that each token covers, end excluded. Added tokens cover none: from 0 to 0.

    pieces: the bytes of each token; of special tokens, their names.
    """
    data = text.encode()
    at = 0
    found: list[SimpleToken] = []
    for token, piece in zip(tokens, pieces, strict=True):
        start, covered = _covered(data, at, piece)
        if covered:
            at = start + len(covered)
            found.append(
                {"id": token, "text": covered.decode("utf-8", "replace"), "start": start, "stop": at}
            )
        else:
            found.append({"id": token, "text": "", "start": 0, "stop": 0})
    return found


def _covered(data: bytes, at: int, piece: bytes) -> tuple[int, bytes]:
    """The start of the piece from `at` on, and the part of it in the text; empty if it is not there."""
    # SentencePiece adds a space before the text; some special tokens remove the spaces around them.
    forms = (piece, piece[1:]) if piece.startswith(b" ") else (piece,)
    for start in (at, _after_spaces(data, at)):
        for form in forms:
            if form and data.startswith(form, start):
                return start, form
    return at, b""


def _after_spaces(data: bytes, at: int) -> int:
    found = _SPACES.match(data, at)
    return at if found is None else found.end()
