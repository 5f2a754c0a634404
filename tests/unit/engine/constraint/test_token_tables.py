"""The tables of a vocabulary: made once, in steps, by a rest or by the first grammar."""

from __future__ import annotations

from typing import Any

import llguidance
import pytest

from jan_serve.engine.constraint import token_tables
from jan_serve.engine.constraint.token_tables import TokenTables
from tests.unit.engine.small_vocab import LETTERS, small_vocab


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """llguidance's tokenizers, as they are built."""
    made: list[Any] = []
    real = llguidance.LLTokenizer

    class Counted:
        general_slices = real.general_slices

        def __new__(cls, *args: Any, **options: Any) -> Any:
            made.append(real(*args, **options))
            return made[-1]

    monkeypatch.setattr(llguidance, "LLTokenizer", Counted)
    return made


def test_a_rest_makes_what_the_first_grammar_needs(built: list[Any]) -> None:
    tables = TokenTables(small_vocab())
    while not tables.complete:
        tables.advance()
    assert len(built) == 1
    tokenizer = tables.tokenizer()
    assert tokenizer is not built[0]  # it has slices
    assert tokenizer.decode_bytes([2, 3]) == b"ab"
    assert tables.pieces() == [letter.encode() for letter in LETTERS]
    assert len(built) == 1


@pytest.mark.parametrize("steps", range(4))
def test_a_grammar_during_the_rest_makes_only_the_missing_parts(
    steps: int, built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_tables, "_AT_ONCE", len(LETTERS) // 2)
    tables = TokenTables(small_vocab())
    for _ in range(steps):
        tables.advance()
    assert tables.tokenizer().decode_bytes([2]) == b"a"
    assert len(built) == 1
    while not tables.complete:
        tables.advance()
    assert len(built) == 1


def test_a_grammar_waits_for_no_slices(built: list[Any]) -> None:
    tables = TokenTables(small_vocab())
    assert tables.tokenizer() is built[0]
    assert not tables.complete
