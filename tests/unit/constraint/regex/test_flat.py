"""Flat expressions are printed with their counts; all others go through an automaton."""

from __future__ import annotations

import re
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import Grammar, sequence
from jan_serve.constraint.regex.flat import flat_pieces, pieces_expr
from jan_serve.constraint.regex.language import full_regex
from jan_serve.constraint.text_form import PlainText
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer

Counts: TypeAlias = tuple[int, int | None]
COUNTS: st.SearchStrategy[Counts] = st.sampled_from([(1, 1), (2, 2), (0, 1), (1, 2), (0, None), (2, None)])


def spelled(piece: tuple[str, Counts]) -> str:
    chars, (low, high) = piece
    return f"{chars}{{{low},{'' if high is None else high}}}"


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "[ab]", "c"]), COUNTS), min_size=1, max_size=4))
def test_a_flat_expression_keeps_its_texts(pieces: list[tuple[str, Counts]]) -> None:
    pattern = "".join(map(spelled, pieces))
    found = flat_pieces(full_regex(pattern))
    if found is None:
        # Only a piece of several counts can run into what follows it.
        assert any(low != high for _, (low, high) in pieces[:-1])
        return
    recognizer, expected = (
        Recognizer(Grammar({"root": sequence(pieces_expr(found, PlainText()))})),
        re.compile(pattern),
    )
    for text in texts("abc", 6):
        assert recognizer.matches(text) is bool(expected.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "flat"),
    [
        ("[a-z]{0,9999}", True),
        ("[a-z]+[0-9]*", True),
        ("[a-z]{3}[a-z]?", True),
        ("[a-z]+[a-z]", False),
        ("a?b?a", False),
        ("a?ba", True),
        ("(ab)*", False),
        ("a|b", False),
        ("a\\bb", False),
    ],
)
def test_a_piece_may_not_run_into_what_follows(pattern: str, flat: bool) -> None:
    assert (flat_pieces(full_regex(pattern)) is not None) is flat
