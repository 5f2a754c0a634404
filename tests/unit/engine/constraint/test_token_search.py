"""Searches of a vocabulary against a look at every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.engine.constraint import token_search
from jan_serve.engine.constraint.token_search import TokenSearch

PIECES = st.lists(st.text("ab<", max_size=4).map(str.encode), max_size=20)
TEXTS = st.text("ab<", min_size=1, max_size=4).map(str.encode)


@given(PIECES, TEXTS)
def test_a_search_finds_the_tokens_that_a_scan_finds(pieces: list[bytes], text: bytes) -> None:
    search, tokens = TokenSearch(pieces), list(enumerate(pieces))
    assert sorted(search.beginning_with(text)) == [t for t, piece in tokens if piece.startswith(text)]
    assert sorted(search.beginning_of(text)) == [t for t, piece in tokens if piece and text.startswith(piece)]
    for _ in range(2):
        assert search.containing(text) == [t for t, piece in tokens if text in piece]


def test_a_search_ends_where_no_token_goes_on_like_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[bytes] = []

    def counted(keys: Sequence[bytes], prefix: bytes) -> int:
        looked_up.append(prefix)
        return bisect_left(keys, prefix)

    monkeypatch.setattr(token_search, "bisect_left", counted)
    search = TokenSearch([b"a", b"abc", b"b"])
    assert search.beginning_of(b"ab" + b"x" * 10_000) == [0]
    assert looked_up == [b"a", b"ab", b"abx"]


def test_pieces_need_not_be_whole_characters() -> None:
    search = TokenSearch([b"\xe2\x82", "€".encode(), b"\xac", b""])
    assert sorted(search.beginning_with(b"\xe2")) == [0, 1]
    assert search.beginning_of("€uro".encode()) == [0, 1]
    assert search.containing(b"\xac") == [1, 2]
