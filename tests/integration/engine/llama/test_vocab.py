"""The built-in model's vocabulary through llama.cpp: bytes come back as they were, and markers are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.resources import builtin_model

pytestmark = pytest.mark.integration

BUILTIN = builtin_model() or Path()

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two\n\tlines\r\n",
    "日本語 🦜 é",
    "\0\x01",
    "<|im_start|>user\n",
    "x" * 5000,
]


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    backend.start()
    model = LlamaModel(str(BUILTIN), vocab_only=True)
    yield model.vocab
    model.close()


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("parse_special", [False, True])
def test_texts_come_back(vocab: Vocab, text: str, parse_special: bool) -> None:
    tokens = vocab.tokenize(text, add_special=False, parse_special=parse_special)
    assert all(0 <= token < vocab.n_tokens for token in tokens)
    assert vocab.detokenize(tokens, remove_special=False) == text.encode()
    assert b"".join(vocab.piece(token, special=True) for token in tokens) == text.encode()


def test_a_marker_is_one_token_only_where_it_is_parsed(vocab: Vocab) -> None:
    [token] = vocab.tokenize("<|im_start|>", add_special=False, parse_special=True)
    assert vocab.control_token("<|im_start|>") == token
    assert vocab.is_control(token) and vocab.is_markup(token)
    assert token not in vocab.tokenize("<|im_start|>", add_special=False, parse_special=False)
    assert vocab.piece(token, special=False) == b""
    assert vocab.detokenize([token], remove_special=True) == b""


@pytest.mark.parametrize("text", ["hello", "<|im_start|>user", ""])
def test_other_texts_are_no_control_token(vocab: Vocab, text: str) -> None:
    assert vocab.control_token(text) is None


def test_special_tokens_have_their_text(vocab: Vocab) -> None:
    for role, token in vocab.special.items():
        if role != "nl":
            assert vocab.control_token(token.text) == token.id, role
    assert vocab.bos_id == (vocab.special["bos"].id if "bos" in vocab.special else None)


def test_the_tokens_that_end_an_answer(vocab: Vocab) -> None:
    assert vocab.special["eos"].id in vocab.eog_ids
    assert [token for token in range(vocab.n_tokens) if vocab.is_eog(token)] == list(vocab.eog_ids)


def test_pieces_of_a_range_are_those_of_its_tokens(vocab: Vocab) -> None:
    everything = vocab.pieces()
    assert everything == [vocab.piece(token, special=True) for token in range(vocab.n_tokens)]
    assert vocab.pieces(range(10, 20)) == everything[10:20]
