"""The tokens of a query with a document."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.scoring.options import OptionJob, OptionTree
from jan_serve.engine.scoring.scoring_intake import MAX_OPTION_BYTES, ScoringIntake, pair_rows
from jan_serve.engine.tokenizing import TextTokenizer, finish
from jan_serve.errors import ContextLengthExceeded, InvalidRequest, UnsupportedOperation
from jan_serve.ipc.scoring import AdapterUse, OptionQuestion, RankRequest, WeighOptions
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
        (GreedyVocab(LETTERS, BERT, add_bos=True, add_sep=True, always_ends=True), "[CLS] q [SEP] d [SEP]"),
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


PIECES = ["a", "b", "c", "x", " ", "ab", " a"]
CONTROLS = {"bos": "<s>", "eos": "</s>"}
VOCAB = GreedyVocab(PIECES, CONTROLS)
WITH_BOS = GreedyVocab(PIECES, CONTROLS, add_bos=True)


def intake_of(
    vocab: GreedyVocab = VOCAB, *, n_ctx: int = 100, has_head: bool = False, generates: bool = True
) -> ScoringIntake:
    return ScoringIntake(TextTokenizer(vocab), n_ctx=n_ctx, has_head=has_head, generates=generates)


def ask_options(
    *questions: OptionQuestion, shared: tuple[str | tuple[int, ...], ...] = (), **fields: Any
) -> WeighOptions:
    fields = {"cache_salt": "", **fields}
    return WeighOptions(id=7, shared=shared, questions=questions, **fields)


def choose(prompt: str | tuple[int, ...], *options: str) -> OptionQuestion:
    return OptionQuestion((prompt,), options or ("a", "b"))


def rows(job: OptionJob, vocab: GreedyVocab = VOCAB) -> list[str]:
    return [" ".join(vocab.texts(question.row)) for question in job.questions]


@pytest.mark.parametrize(
    ("vocab", "shared", "prompt", "row"),
    [
        (VOCAB, ("a",), "b", "a b"),
        (VOCAB, ("a", (1,)), "b", "a </s> b"),
        (VOCAB, (), "ab", "ab"),
        (VOCAB, ("a</s>",), "<s>b", "a </s> <s> b"),
        (VOCAB, (), (3, 2), "b a"),
        (WITH_BOS, ("a",), "b", "<s> a b"),
        (WITH_BOS, (), "b", "<s> b"),
        (WITH_BOS, ("<s>a",), "b", "<s> a b"),
        (WITH_BOS, ((0,),), "b", "<s> b"),
    ],
)
def test_a_prompt_is_tokenised_piece_by_piece(
    vocab: GreedyVocab, shared: tuple[str | tuple[int, ...], ...], prompt: str | tuple[int, ...], row: str
) -> None:
    job = finish(intake_of(vocab).weigh(ask_options(choose(prompt), shared=shared)))
    assert rows(job, vocab) == [row]
    assert job.request_id == 7


def test_questions_share_what_they_begin_with() -> None:
    job = finish(intake_of().weigh(ask_options(choose("ab"), choose("ac"), shared=("x", "c", "c"))))
    assert rows(job) == ["x c c ab", "x c c a c"]
    assert (job.num_shared, job.prompt_tokens) == (3, 6)


def test_prompts_of_another_user_or_adapter_share_nothing() -> None:
    weigh = intake_of().weigh
    question = choose("a")
    one = AdapterUse(0, 1.0)
    jobs = [
        finish(weigh(ask_options(question))),
        finish(weigh(ask_options(question, cache_salt="s"))),
        finish(weigh(ask_options(question, adapters=(one,)))),
        finish(weigh(ask_options(question, adapters=(AdapterUse(0, 0.5),)))),
        finish(weigh(ask_options(question, adapters=(one,), cache_salt="s"))),
    ]
    assert len({job.key for job in jobs}) == len(jobs)
    assert jobs[0].key == finish(weigh(ask_options(choose("b")))).key
    assert jobs[2].adapters == (one,)


def follow_all(tree: OptionTree) -> None:
    """Every token has the same probability."""
    tree.add_logits((), np.zeros(VOCAB.n_tokens, np.float32))
    while paths := tree.next_paths(9):
        for path in paths:
            tree.add_logits(path, np.zeros(VOCAB.n_tokens, np.float32))


@pytest.mark.parametrize(("canonical", "counts"), [(False, [2, 1]), (True, [1, 1])])
def test_an_option_has_the_tokenisations_of_the_vocabulary(canonical: bool, counts: list[int]) -> None:
    job = finish(intake_of().weigh(ask_options(choose("x", "ab", "c"), canonical=canonical)))
    tree = job.questions[0].tree
    follow_all(tree)
    masses, is_exact = tree.result()
    assert (tree.counts, is_exact) == (counts, not canonical)
    assert math.exp(masses[1]) == pytest.approx(1 / VOCAB.n_tokens)


def test_a_space_that_the_vocabulary_adds_does_not_count() -> None:
    """`a` may be written as ` a` or as `a`, which is the one that follows a line break."""
    vocab = GreedyVocab(PIECES, CONTROLS, adds_space=True)
    tree = finish(intake_of(vocab).weigh(ask_options(choose("x", "a", "b")))).questions[0].tree
    assert tree.longest == 2
    follow_all(tree)
    assert tree.counts == [3, 2], "the letter, the space and the letter, and for a both in a token"


@pytest.mark.parametrize(
    ("vocab", "options", "words"),
    [
        (VOCAB, ("a" * (MAX_OPTION_BYTES + 1), "b"), f"has {MAX_OPTION_BYTES + 1} bytes, the limit is"),
        (GreedyVocab(PIECES, only_small=True), ("A", "b"), "cannot write 'A', but 'a'"),
        (GreedyVocab(PIECES, adds_space=True), ("a", " a"), "'a' differs from another one by a space"),
        (GreedyVocab(PIECES, adds_space=True), (" a", "a"), "'a' differs from another one by a space"),
    ],
)
def test_options_that_cannot_be_weighed(vocab: GreedyVocab, options: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        finish(intake_of(vocab).weigh(ask_options(choose("x", *options))))
    assert refused.value.param == "options"


def test_the_longest_option_passes() -> None:
    job = finish(intake_of(n_ctx=9).weigh(ask_options(choose("x", "c" * MAX_OPTION_BYTES, "b"))))
    assert job.questions[0].tree.longest == MAX_OPTION_BYTES


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([choose((9,))], r"token id 9 is outside the vocabulary \(0 to 8\)"),
        ([choose("a"), choose((-1,))], "token id -1 is outside"),
        ([choose("a"), choose("")], "item 1 has an empty prompt"),
    ],
)
def test_prompts_that_cannot_be_read(questions: list[OptionQuestion], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        finish(intake_of().weigh(ask_options(*questions)))
    assert refused.value.param == "questions"


@pytest.mark.parametrize(
    ("shared", "n_prompt", "item"), [("c", 9, 1), ("x" * 20, 21, 0)], ids=["a question", "the shared text"]
)
def test_the_first_prompt_that_is_too_long_is_named(shared: str, n_prompt: int, item: int) -> None:
    questions = [choose("a"), choose("x" * 8), choose("x" * 30)]
    with pytest.raises(ContextLengthExceeded) as refused:
        finish(intake_of(n_ctx=8).weigh(ask_options(*questions, shared=(shared,))))
    error = refused.value
    assert (error.n_prompt, error.n_ctx, error.item, error.param) == (n_prompt, 8, item, "questions")


def rank(*documents: str, query: str = "x", **fields: Any) -> RankRequest:
    return RankRequest(id=7, query=query, documents=documents, **fields)


def test_pairs_go_to_the_head_of_a_model_that_has_one() -> None:
    job = finish(intake_of(has_head=True, generates=False).rank(rank("a", "ab")))
    assert isinstance(job, EmbedJob)
    assert [VOCAB.texts(row) for row in job.rows] == [["x", "a"], ["x", "ab"]]
    assert (job.request_id, job.request.normalize) == (7, False)


def test_pairs_are_judged_by_the_labels_that_other_models_write() -> None:
    job = finish(intake_of().rank(rank("a", "ab", template="{query}{query}{document}", labels=("c", "b"))))
    assert isinstance(job, OptionJob)
    assert rows(job) == ["x x a", "x x ab"]
    assert (job.num_shared, job.adapters, job.request_id) == (2, (), 7)


@pytest.mark.parametrize("has_head", [True, False])
def test_a_pair_of_nothing_is_refused(has_head: bool) -> None:
    with pytest.raises(InvalidRequest, match="documents: item 1 and the query are empty") as refused:
        finish(intake_of(has_head=has_head).rank(rank("a", "", query="", labels=("a", "b"))))
    assert refused.value.param == "documents"


def test_a_model_that_neither_scores_nor_writes_is_refused() -> None:
    intake = intake_of(generates=False)
    for ask_it in (
        lambda: finish(intake.rank(rank("a", labels=("a", "b")))),
        lambda: finish(intake.weigh(ask_options(choose("x")))),
    ):
        with pytest.raises(UnsupportedOperation, match="does not write text") as refused:
            ask_it()
        assert refused.value.param == "model"
