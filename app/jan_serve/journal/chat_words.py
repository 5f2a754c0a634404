"""Texts as the index of words takes them, and the queries of people as it reads them. Pure."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from typing import Final

_MAX_WORDS: Final = 16
_BEFORE: Final = 40
_AFTER: Final = 50
"""Characters of an excerpt, around the beginning of a word."""
_MARKS: Final = "[\u0300-\u036f]*"
_BREAK: Final = "\u200b"
"""Stands between words, and is invisible."""
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
"""Characters of languages that write no spaces between words: each is a word of the index."""


def searchable(text: str) -> str:
    """The text with its words apart."""
    return _UNSPACED.sub(rf"{_BREAK}\1{_BREAK}", text.replace("\0", " "))


def excerpt(text: str, query: str) -> str:
    """The first place with a word of the query in what `searchable` made, on one line; empty if there is none.

    SQLite's own `snippet` compares each match with each other one: hours, where a long text repeats a word.
    """
    pattern = "|".join(filter(None, map(_pattern, _words(query))))
    plain = unicodedata.normalize("NFD", text.replace(_BREAK, ""))
    found = pattern and (
        re.search(rf"(?<!\w)(?:{pattern})", plain, re.IGNORECASE) or re.search(pattern, plain, re.IGNORECASE)
    )
    if not found:
        return ""
    start, end = max(0, found.start() - _BEFORE), found.start() + _AFTER
    line = " ".join(unicodedata.normalize("NFC", plain[start:end]).split())
    return ("…" if start else "") + line + ("…" if end < len(plain) else "")


def _pattern(word: str) -> str:
    """The letters and digits of the word with any marks, and anything else where it has anything else."""
    letters = unicodedata.normalize("NFD", word.replace(_BREAK, ""))
    plain = (char for char in letters if not unicodedata.combining(char))
    runs = ("".join(run) for is_word, run in groupby(plain, str.isalnum) if is_word)
    return r"\W+".join("".join(re.escape(char) + _MARKS for char in run) for run in runs)


def _words(query: str) -> list[str]:
    words = [word for word in searchable(query).split() if any(map(str.isalnum, word))]
    return words[:_MAX_WORDS]


def found_by(query: str, owner: str) -> str | None:
    """A query of FTS5: each word begins a word of the chat. owner: a word, too. None if the query has no word."""
    words = _words(query)
    if not words:
        return None
    each = " AND ".join('"{}" *'.format(word.replace('"', '""')) for word in words)
    return f'owner : "{owner}" AND ({{title text}} : ({each}))'
