"""Texts as the index of words takes them, and the queries of people as it reads them. Pure."""

from __future__ import annotations

import re
from typing import Final

_MAX_WORDS: Final = 16
_BREAK: Final = "\u200b"
"""Stands between words, and is invisible."""
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
"""Characters of languages that write no spaces between words: each is a word of the index."""


def searchable(text: str) -> str:
    """The text with its words apart. `shown` undoes it."""
    return _UNSPACED.sub(rf"{_BREAK}\1{_BREAK}", text.replace("\0", " "))


def shown(text: str) -> str:
    """An excerpt of it on one line."""
    return " ".join(text.replace(_BREAK, "").split())


def found_by(query: str, owner: str) -> str | None:
    """A query of FTS5: each word begins a word of the chat. owner: a word, too. None if the query has no word."""
    words = [word for word in searchable(query).split() if any(map(str.isalnum, word))]
    if not words:
        return None
    each = " AND ".join('"{}" *'.format(word.replace('"', '""')) for word in words[:_MAX_WORDS])
    return f'owner : "{owner}" AND ({{title text}} : ({each}))'
