"""The tokens of a query with a document."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.engine.scoring.pair_tokens import pair_rows
from jan_serve.engine.tokenizing import TextTokenizer, finish
from jan_serve.errors import ContextLengthExceeded
from jan_serve.ipc.scoring import RankRequest
from tests.unit.engine.greedy_vocab import GreedyVocab

LETTERS = [chr(byte) for byte in range(ord(" "), ord("~") + 1)]
BERT = {"bos": "[CLS]", "sep": "[SEP]"}


def ask(query: str, *documents: str, **fields: Any) -> RankRequest:
    return RankRequest(id=1, query=query, documents=documents, **fields)


@pytest.mark.parametrize(
    ("vocab", "row"),
    [
        (GreedyVocab(LETTERS), "q d"),
        (GreedyVocab(LETTERS, {"bos": "<s>", "eos": "</s>"}, add_bos=True), "<s> q d"),
        (GreedyVocab(LETTERS, {"bos": "<s>", "eos": "</s>"}), "q d"),
        (
            GreedyVocab(LETTERS, {"bos": "<s>", "eos": "</s>", "sep": "<sep>"}, add_bos=True, add_eos=True),
            "<s> q </s> d </s>",
        ),
        (
            GreedyVocab(
                LETTERS,
                {"bos": "<s>", "eos": "</s>", "sep": "<sep>"},
                add_bos=True,
                add_eos=True,
                add_sep=True,
            ),
            "<s> q </s> <sep> d </s>",
        ),
        (GreedyVocab(LETTERS, BERT, add_bos=True, add_sep=True), "[CLS] q [SEP] d"),
        (
            GreedyVocab(LETTERS, BERT, add_bos=True, add_sep=True, always_ends=True),
            "[CLS] q [SEP] d [SEP]",
        ),
        (GreedyVocab(LETTERS, BERT, add_bos=True, add_eos=True), "[CLS] q [SEP] d [SEP]"),
    ],
)
def test_the_separators_are_those_that_the_vocabulary_adds(vocab: GreedyVocab, row: str) -> None:
    assert [vocab.texts(found) for found in finish(pair_rows(TextTokenizer(vocab), ask("q", "d"), 100))] == [
        row.split()
    ]


def test_separators_in_texts_are_texts() -> None:
    vocab = GreedyVocab(LETTERS, BERT, add_bos=True, add_eos=True)
    [row] = finish(pair_rows(TextTokenizer(vocab), ask("[SEP]", "[CLS]"), 100))
    assert vocab.texts(row) == ["[CLS]", *"[SEP]", "[SEP]", *"[CLS]", "[SEP]"]


def test_documents_have_at_most_so_many_tokens() -> None:
    vocab = GreedyVocab([*LETTERS, "abc"], adds_space=True)
    rows = finish(pair_rows(TextTokenizer(vocab), ask("q", "abcde", "ab", "", max_document_tokens=2), 100))
    assert [vocab.texts(row) for row in rows] == [[" ", "q", " ", "abc"], [" ", "q", " ", "a"], [" ", "q"]]


def test_a_document_is_cut_at_the_end_of_a_character() -> None:
    vocab = GreedyVocab([*LETTERS, *(bytes([byte]) for byte in "é€".encode())])
    rows = [
        finish(pair_rows(TextTokenizer(vocab), ask("q", "é€x", max_document_tokens=most), 100))[0]
        for most in range(1, 7)
    ]
    assert [vocab.detokenize(row, remove_special=True).decode() for row in rows] == [
        "q", "qé", "qé", "qé", "qé€", "qé€x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("n_ctx", "row"),
    [(6, "<s> q </s> a b c".split()), (5, ["<s>", "q", "</s>", "a", "b"]), (3, ["<s>", "q", "</s>"])],
)
def test_a_document_is_cut_to_what_fits(n_ctx: int, row: list[str]) -> None:
    vocab = GreedyVocab(LETTERS, {"bos": "<s>", "eos": "</s>"})
    [found] = finish(
        pair_rows(
            TextTokenizer(vocab), ask("q", "abc", template="<s>{query}</s>{document}", truncate=True), n_ctx
        )
    )
    assert vocab.texts(found) == row


@pytest.mark.parametrize(
    ("n_ctx", "row"), [(4, ["yxa", "b", "c", "de"]), (3, ["yxa", "b", "c"]), (2, ["yx"]), (1, ["yx"])]
)
def test_a_cut_that_tokenises_to_more_is_cut_again(n_ctx: int, row: list[str]) -> None:
    vocab = GreedyVocab(["yxa", "yx", "abc", "b", "c", "d", "de"])
    [found] = finish(
        pair_rows(TextTokenizer(vocab), ask("", "abcdede", template="yx{document}", truncate=True), n_ctx)
    )
    assert vocab.texts(found) == row


class CountingVocab(GreedyVocab):
    """Notes the texts that it tokenises."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[str] = []

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        self.asked.append(text)
        return super().tokenize(text, add_special=add_special, parse_special=parse_special)


def test_the_first_document_that_is_too_long_ends_the_work() -> None:
    vocab = CountingVocab(LETTERS)
    with pytest.raises(ContextLengthExceeded) as refused:
        finish(pair_rows(TextTokenizer(vocab), ask("qq", "a", "a" * 9, "b" * 30), 8))
    error = refused.value
    assert (error.n_prompt, error.n_ctx, error.param, error.item) == (11, 8, "documents", 1)
    assert "b" * 30 not in vocab.asked


def test_the_query_is_tokenised_once() -> None:
    vocab = CountingVocab(LETTERS)
    finish(pair_rows(TextTokenizer(vocab), ask("qq", *"abcd", max_document_tokens=4), 8))
    assert vocab.asked.count("qq") == 1


@pytest.mark.parametrize(
    "fields", [{}, {"truncate": True}, {"template": "{query} {document}", "truncate": True}]
)
def test_a_query_that_is_too_long_is_not_cut(fields: dict[str, Any]) -> None:
    vocab = CountingVocab(LETTERS)
    with pytest.raises(ContextLengthExceeded) as refused:
        finish(pair_rows(TextTokenizer(vocab), ask("q" * 9, "", *["abc"] * 50, **fields), 8))
    assert refused.value.item == 0
    assert len(vocab.asked) < 10, "the documents are not read"
