"""The tables of a vocabulary: made once, in steps, by a rest or by the first grammar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llguidance
import pytest

from jan_serve.engine.constraint import token_tables
from jan_serve.engine.constraint.early_tables import EarlyTables
from jan_serve.engine.constraint.kept_tokens import KeptTokens, VocabularyTokens
from jan_serve.engine.constraint.token_tables import TokenTables
from tests.unit.engine.small_vocab import LETTERS, SmallVocab, small_vocab


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


def test_a_rest_makes_what_the_first_grammar_needs(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TokenTables(small_vocab())
    while not tables.complete:
        tables.advance()
    assert len(built) == 1
    tokenizer = tables.tokenizer()
    assert tokenizer is not built[0]  # it has slices
    assert tokenizer.decode_bytes([2, 3]) == b"ab"
    assert tables.pieces() == [letter.encode() for letter in LETTERS]
    assert len(built) == 1
    monkeypatch.setattr(token_tables, "TokenSearch", None)
    assert tables.search().beginning_with(b"b") == [3]


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


def early_in(folder: Path) -> EarlyTables:
    early = EarlyTables(KeptTokens(folder, lambda: "model"))
    early.start()
    return early


def completed(tables: TokenTables) -> TokenTables:
    while not tables.complete:
        tables.advance()
    return tables


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The tokens whose bytes llama.cpp was asked for, of a vocabulary that is worth a file."""
    monkeypatch.setattr(token_tables, "_MANY", 2)
    found: list[range] = []
    real = SmallVocab.pieces

    def pieces(vocab: SmallVocab, tokens: range) -> list[bytes]:
        found.append(tokens)
        return real(vocab, tokens)

    monkeypatch.setattr(SmallVocab, "pieces", pieces)
    return found


@pytest.mark.parametrize("grammar_first", [True, False])
def test_after_a_grammar_the_next_worker_asks_for_no_token(
    tmp_path: Path, grammar_first: bool, asked: list[range], built: list[Any]
) -> None:
    tables = TokenTables(small_vocab(), early_in(tmp_path))
    if grammar_first:
        tables.tokenizer()
        completed(tables)
    else:
        completed(tables).tokenizer()
    assert len(asked) == len(built) == 1
    again = TokenTables(small_vocab(), early_in(tmp_path))
    tokenizer = again.tokenizer()
    assert tokenizer is built[1]
    assert again.pieces() == tables.pieces()
    assert completed(again).tokenizer().decode_bytes([2, 3]) == b"ab"
    assert tokenizer.eos_token == tables.tokenizer().eos_token
    assert tokenizer.tokenize_str("ab") == tables.tokenizer().tokenize_str("ab")
    assert len(asked) == 1


def test_a_model_without_grammars_keeps_nothing(tmp_path: Path, asked: list[range]) -> None:
    completed(TokenTables(small_vocab(), early_in(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_the_tokens_of_another_vocabulary_are_not_used(tmp_path: Path, asked: list[range]) -> None:
    KeptTokens(tmp_path, lambda: "model").write(VocabularyTokens([b"a", b"b"], [], 1))
    tables = TokenTables(small_vocab(), early_in(tmp_path))
    assert tables.tokenizer().decode_bytes([2]) == b"a"
    assert len(asked) == 1


def test_a_failure_of_the_thread_is_that_of_the_grammar(tmp_path: Path) -> None:
    def fail() -> str:
        raise RuntimeError("a defect")

    early = EarlyTables(KeptTokens(tmp_path, fail))
    early.start()
    with pytest.raises(RuntimeError, match="a defect"):
        TokenTables(small_vocab(), early).tokenizer()
