"""Which bytes of a text its tokens cover, in TGI's form. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jan_serve.api.dialects.tgi.generate.wire import SimpleToken

_SPACES: Final = re.compile(rb"\s*")


def spans(text: str, tokens: Sequence[int], pieces: Sequence[bytes]) -> list[SimpleToken]:
    """Where each token lies in the text's bytes, the end excluded. Tokens that were added lie nowhere: from 0 to 0.

    pieces: the bytes of each token, special ones by their names.
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
    """Where from `at` on the piece begins, and what of it the text has; nothing where it is not there."""
    # SentencePiece puts a space before a text, which is not in it; some special tokens take the spaces around away.
    forms = (piece, piece[1:]) if piece.startswith(b" ") else (piece,)
    for start in (at, _behind_spaces(data, at)):
        for form in forms:
            if form and data.startswith(form, start):
                return start, form
    return at, b""


def _behind_spaces(data: bytes, at: int) -> int:
    found = _SPACES.match(data, at)
    return at if found is None else found.end()
