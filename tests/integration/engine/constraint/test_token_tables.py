"""The tables of a vocabulary: made once, in steps, by a rest or by the first grammar."""

from __future__ import annotations

import hashlib
import os
import stat
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llguidance
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.engine.constraint import token_tables
from jan_serve.engine.constraint.token_tables import (
    EarlyTables,
    KeptTokens,
    TokenSearch,
    TokenTables,
    VocabularyTokens,
)
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


@pytest.mark.parametrize("place", ["pieces", "import", "slices", "search", "thread"])
@pytest.mark.parametrize("grammar_first", [True, False])
def test_what_there_was_no_memory_for_is_made_later(
    tmp_path: Path, place: str, grammar_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, each part of the tables fails; what was made before is kept, and no wait is without an end."""
    failed: list[str] = []

    def failing_once(real: Any) -> Any:
        def once(*args: Any, **options: Any) -> Any:
            if not failed:
                failed.append(place)
                raise MemoryError
            return real(*args, **options)

        return once

    if place == "pieces":
        monkeypatch.setattr(SmallVocab, "pieces", failing_once(SmallVocab.pieces))
    elif place == "slices":
        monkeypatch.setattr(
            llguidance.LLTokenizer, "with_slices", failing_once(llguidance.LLTokenizer.with_slices)
        )
    elif place == "search":
        monkeypatch.setattr(token_tables, "TokenSearch", failing_once(TokenSearch))
    else:
        monkeypatch.setattr(token_tables, "made_tokenizer", failing_once(token_tables.made_tokenizer))
    early = None
    if place == "thread":
        kept(tmp_path).write(VocabularyTokens([letter.encode() for letter in LETTERS], [], 1))
        early = early_in(tmp_path)
    tables = TokenTables(small_vocab(), early)
    with pytest.raises(MemoryError):
        if grammar_first:
            tables.tokenizer()
        completed(tables)
    assert tables.tokenizer().decode_bytes([2, 3]) == b"ab"
    assert completed(tables).tokenizer().decode_bytes([2, 3]) == b"ab"
    assert tables.pieces() == [letter.encode() for letter in LETTERS]
    assert tables.search().beginning_with(b"b") == [3]
    assert failed == [place]


TOKENS = VocabularyTokens([b"", b"a", "ü".encode(), b"\xff\x00", b"<|end|>" * 40], [0, 4], 4)


def kept(folder: Path, name: str = "model") -> KeptTokens:
    return KeptTokens(folder, lambda: name)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_it_is_for_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept(tmp_path / "new").write(TOKENS)
    finally:
        os.umask(before)
    [path] = (tmp_path / "new").iterdir()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


@pytest.mark.parametrize("at", [0, 16, 40, -1])
def test_a_damaged_file_is_not_used(tmp_path: Path, at: int) -> None:
    kept(tmp_path).write(TOKENS)
    [path] = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert kept(tmp_path).read() is None
    path.write_bytes(content[:5])
    assert kept(tmp_path).read() is None
    kept(tmp_path).write(TOKENS)
    assert kept(tmp_path).read() == TOKENS


def file_of(body: bytes, magic: bytes = b"JANTOKS2") -> bytes:
    """As the store writes it."""
    return magic + hashlib.blake2b(body, digest_size=16).digest() + body


def body_of(**changed: Any) -> bytes:
    return msgspec.msgpack.encode({"pieces": [b"a", b"", b"bc"], "controls": [0, 2], "eos": 2, **changed})


UNUSABLE = {
    "empty": b"",
    "of a later format": file_of(body_of(), b"JANTOKS3"),
    "without a format": file_of(body_of())[8:],
    "no MessagePack": file_of(b"\xc1"),
    "of other fields": file_of(msgspec.msgpack.encode({"tokens": [b"a"]})),
    "nested without end": file_of(b"\x81\xa1x" + b"\x91" * 9_999),
    "of other types": file_of(body_of(pieces=["abc", b""])),
    "cut off": file_of(body_of()[:-1]),
    "no tokens": file_of(body_of(pieces=[], controls=[], eos=0)),
    "a control token that is not there": file_of(body_of(controls=[3])),
    "a negative control token": file_of(body_of(controls=[-1])),
    "an end that is not there": file_of(body_of(eos=3)),
    "a negative end": file_of(body_of(eos=-1)),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_this_version_did_not_write_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.tokens"
    path.write_bytes(file_of(body_of()))
    assert kept(tmp_path).read() == VocabularyTokens([b"a", b"", b"bc"], [0, 2], 2)
    path.write_bytes(content)
    assert kept(tmp_path).read() is None
    kept(tmp_path).write(TOKENS)
    assert kept(tmp_path).read() == TOKENS


def test_no_file_takes_more_memory_than_a_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path).write(TOKENS)
    [path] = tmp_path.iterdir()
    monkeypatch.setattr(token_tables, "_MOST_BYTES", path.stat().st_size)
    assert kept(tmp_path).read() == TOKENS
    monkeypatch.setattr(token_tables, "_MOST_BYTES", path.stat().st_size - 1)
    assert kept(tmp_path).read() is None


def test_those_not_used_for_longest_make_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_tables, "_MOST_FILES", 2)
    for age, name in enumerate(("a", "b")):
        kept(tmp_path, name).write(TOKENS)
        os.utime(tmp_path / f"{name}.tokens", (age, age))
    kept(tmp_path, "a").read()
    kept(tmp_path, "c").write(TOKENS)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_disk_that_refuses_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    kept(tmp_path / "file").write(TOKENS)
    assert kept(tmp_path / "file").read() is None

    def fail() -> str:
        raise OSError("the model is gone")

    assert KeptTokens(tmp_path, fail).read() is None
    KeptTokens(tmp_path, fail).write(TOKENS)


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

    monkeypatch.setattr(token_tables, "bisect_left", counted)
    search = TokenSearch([b"a", b"abc", b"b"])
    assert search.beginning_of(b"ab" + b"x" * 10_000) == [0]
    assert looked_up == [b"a", b"ab", b"abx"]
