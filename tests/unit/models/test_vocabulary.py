"""Byte-pair merges and the vocabulary that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.recipe.fixtures import fixture_vocabulary
from models.recipe.vocabulary import SPECIAL_TOKENS, Vocabulary, byte_symbols, learn_merges


def test_every_byte_has_its_own_printable_symbol() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256
    assert symbols[ord("A")] == "A"
    assert symbols[ord(" ")] == "Ġ"
    assert all(symbol.isprintable() and not symbol.isspace() for symbol in symbols)


@pytest.mark.parametrize(
    ("words", "count", "merges"),
    [
        (["aa", "ab", "ab"], 1, [("a", "b")]),
        (["aaa"], 3, [("a", "a"), ("aa", "a")]),
        (["ab", "ba"], 1, [("a", "b")]),
        ([], 4, []),
    ],
)
def test_most_frequent_pair_is_merged_first(
    words: list[str], count: int, merges: list[tuple[str, str]]
) -> None:
    assert learn_merges(words, count) == merges


def test_tokens_are_special_tokens_bytes_and_merges_in_this_order() -> None:
    vocabulary = Vocabulary.from_merges([("t", "h"), ("th", "e")])
    assert vocabulary.tokens[: len(SPECIAL_TOKENS)] == SPECIAL_TOKENS
    assert vocabulary.tokens[-2:] == ("th", "the")
    assert len(vocabulary.tokens) == len(SPECIAL_TOKENS) + 256 + 2
    with pytest.raises(ValueError, match="not in tuple"):
        vocabulary.id_of("absent")


def test_saved_vocabulary_comes_back(tmp_path: Path) -> None:
    vocabulary = fixture_vocabulary()
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary


def test_word_pieces_are_the_letters_of_tokens_each_once() -> None:
    merges = [
        ("t", "h"),
        ("Ġ", "th"),
        ("T", "h"),
        ("_", "th"),
        ("N", "A"),
        ("Ã", "©"),
        ("th", "e"),
        ('"', ","),
    ]
    pieces = Vocabulary.from_merges(merges).word_pieces()
    # The letters alone are tokens as well.
    assert [piece for piece in pieces if len(piece) > 1] == ["th", "the"]
    assert set("abcxyz") < set(pieces)
    assert all(piece.isascii() and piece.islower() for piece in pieces)
