"""Sums over the tokenisations of options, compared with all paths written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.engine.embedding.input_pooling import GROUP_TOKENS
from jan_serve.engine.scoring.options import (
    BRANCHES,
    N_SEQUENCES,
    OptionJob,
    OptionScorer,
    OptionTree,
    Path,
    SpelledOption,
    TokenisedQuestion,
)
from jan_serve.engine.tokens import shared_prefix
from jan_serve.ipc.scoring import OptionsWeighed
from tests.unit.engine.branching_context import Contexts, values_after
from tests.unit.engine.scoring.tokenisations import PIECES, VOCABULARY, canonical, paths_of

# Tokens of a small vocabulary; 7 is of no option.


def logits_after(path: Path, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    random = np.random.default_rng([seed, *(token + 1 for token in path)])
    return random.normal(0.0, 2.0, len(VOCABULARY)).astype(np.float32)


def probability(path: Path, seed: int = 0) -> float:
    value = 1.0
    for end, token in enumerate(path):
        logits = logits_after(path[:end], seed).astype(np.float64)
        value *= float(np.exp(logits[token]) / np.exp(logits).sum())
    return value


def weighed(options: list[bytes], seed: int = 0, *, canonical_only: bool = False) -> tuple[list[float], bool]:
    spelled = [SpelledOption((text,), canonical(text)) for text in options]
    tree = OptionTree(spelled, PIECES, canonical_only=canonical_only)
    while paths := tree.next_paths(3):
        for path in paths:
            for beginning in tree.missing(path):
                tree.add_logits(beginning, logits_after(beginning, seed))
    masses, is_exact = tree.result()
    return [math.exp(mass) for mass in masses], is_exact


def wanted(options: list[bytes], seed: int, paths: dict[bytes, list[Path]]) -> list[float]:
    """Probability of each option: that of its paths, without those of a longer option that pass its end."""
    found: list[float] = []
    for option in options:
        total = 0.0
        for path in paths[option]:
            total += probability(path, seed)
        for other in options:
            if other != option and other.startswith(option):
                for path in paths[other]:
                    ends = list(itertools.accumulate(len(VOCABULARY[token]) for token in path))
                    between = {len(text) for text in options if other.startswith(text) and text != other}
                    passed = [end for end in ends if end in between]
                    if passed and passed[-1] == len(option):
                        total -= probability(path, seed)
        found.append(total)
    return found


@settings(max_examples=25, deadline=None)
@given(
    options=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=5, unique=True),
    seed=st.integers(0, 1000),
    canonical_only=st.booleans(),
)
def test_masses_are_those_of_the_paths(options: list[str], seed: int, canonical_only: bool) -> None:
    texts = [option.encode() for option in options]
    found, is_exact = weighed(texts, seed, canonical_only=canonical_only)
    assert is_exact is not canonical_only
    paths = {text: [canonical(text)] if canonical_only else paths_of(text) for text in texts}
    expected = wanted(texts, seed, paths)
    assert found == pytest.approx(expected, abs=max(expected) * 1e-4)
    assert all(value >= 0.0 for value in found) and sum(found) <= 1.0 + 1e-9


def test_options_that_the_tokenizer_merges_share_no_mass() -> None:
    """`ab` is one token and also `a`, `b`: the second way belongs to `ab`, not to `a`."""
    found, _ = weighed([b"a", b"ab"])
    assert found[0] == pytest.approx(probability((0,)) - probability((0, 1)), rel=1e-4)
    assert found[1] == pytest.approx(probability((0, 1)) + probability((2,)), rel=1e-4)


# Tokens 0 to 7 of the context; 7 is of no option.
FEW = (b"ab", b"c")
LONG = (b"abab", b"bc", b"cab")
OPTIONS = [FEW, LONG, (b"aba",)]


def log_mass(row: Sequence[int], text: bytes, *, canonical_only: bool) -> float:
    """The logarithm of the probability of all tokenisations of a text after a row, one path at a time."""
    total = 0.0
    for path in [canonical(text)] if canonical_only else paths_of(text):
        log_p = 0.0
        for end, token in enumerate(path):
            logits = values_after((*row, *path[:end]), 8).astype(np.float64)
            log_p += float(logits[token]) - math.log(float(np.exp(logits).sum()))
        total += math.exp(log_p)
    return math.log(total)


def job_of(
    rows: Sequence[list[int]],
    *,
    key: str = "",
    options: Sequence[bytes] | None = None,
    canonical_only: bool = False,
) -> OptionJob:
    """Its questions have the same options, or each in turn those of OPTIONS."""
    questions: list[TokenisedQuestion] = []
    for number, row in enumerate(rows):
        texts = OPTIONS[number % len(OPTIONS)] if options is None else options
        spelled = [SpelledOption((text,), canonical(text)) for text in texts]
        questions.append(TokenisedQuestion(row, OptionTree(spelled, PIECES, canonical_only=canonical_only)))
    return OptionJob(1, (), key, questions, shared_prefix(rows))


def rows_of(lengths: Sequence[int], shared: int = 0, seed: int = 3) -> list[list[int]]:
    """Rows of these lengths, which begin alike and then differ."""
    random = np.random.default_rng(seed)
    prefix = random.integers(100, 200, shared).tolist()
    return [
        [*prefix, number, *random.integers(100, 200, length - shared - 1).tolist()]
        for number, length in enumerate(lengths)
    ]


class Scored:
    """A scorer over made-up contexts."""

    def __init__(self, batch_tokens: int = 128, *, is_cuttable: bool = True) -> None:
        self.contexts = Contexts(n_sequences=N_SEQUENCES, is_cuttable=is_cuttable)
        self.scorer = OptionScorer(self.contexts.create, batch_tokens)
        self.sizes: list[int] = []

    def weigh(self, job: OptionJob, room: int = 4096) -> OptionsWeighed:
        while (answer := job.answer()) is None:
            before = len(self.contexts.current.decoded) if self.contexts.made else 0
            self.scorer.advance(job, room, self.contexts.compute)
            self.sizes += self.contexts.current.decoded[before:]
        return answer


def check(answer: OptionsWeighed, job: OptionJob, *, canonical_only: bool = False) -> None:
    for number, (question, weights) in enumerate(zip(job.questions, answer.answers, strict=True)):
        texts = OPTIONS[number % len(OPTIONS)]
        wanted = [log_mass(question.row, text, canonical_only=canonical_only) for text in texts]
        assert weights.is_exact is not canonical_only
        assert weights.log_masses == pytest.approx(wanted, abs=1e-3)


ROWS = {
    "one": rows_of([40]),
    "one token": [[3]],
    "equal": [[1, 2, 3, 4]] * 3,
    "nothing alike": rows_of([9, 1, 30, 2, 2]),
    "a common prompt": rows_of([60, 41, 100, 42], shared=40),
    "one is the beginning of another": [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2]],
    "more than branches": rows_of([30 + number % 7 for number in range(2 * BRANCHES + 3)], shared=20),
    "longer than a group": rows_of([GROUP_TOKENS + 500, 50, GROUP_TOKENS + 700], shared=30),
}


@pytest.mark.parametrize("room", [7, 4096])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_options_are_weighed_as_for_each_question_alone(rows: list[list[int]], room: int) -> None:
    job = job_of(rows)
    scored = Scored()
    check(scored.weigh(job, room), job)
    assert max(scored.sizes) <= min(128, room)


def test_a_common_prompt_is_read_once_and_stays_for_the_next_job() -> None:
    rows = rows_of([50] * 20, shared=40)
    scored = Scored()
    first = scored.weigh(job_of(rows, options=FEW))
    assert (first.prompt_tokens, first.cached_tokens) == (40 + 20 * 10, 0)
    assert scored.sizes[0] == 40
    second = scored.weigh(job_of(rows[:2], options=FEW))
    assert (second.prompt_tokens, second.cached_tokens) == (40 + 2 * 10, 40)
    assert second.answers == first.answers[:2]
    assert len(scored.contexts.made) == 1


@pytest.mark.parametrize(
    ("kept", "key", "is_cuttable", "cached"),
    [
        (40, "", True, 40),
        (40, "", False, 40),
        (25, "", True, 25),
        (25, "", False, 0),
        (0, "", True, 0),
        (40, "another", True, 0),
    ],
)
def test_what_the_next_job_shares(kept: int, key: str, is_cuttable: bool, cached: int) -> None:
    scored = Scored(is_cuttable=is_cuttable)
    first = rows_of([150, 151, 152], shared=40)
    scored.weigh(job_of(first))
    job = job_of([[*first[0][:kept], *row] for row in rows_of([30, 31, 32], shared=20, seed=9)], key=key)
    answer = scored.weigh(job)
    assert answer.cached_tokens == cached
    check(answer, job)


@pytest.mark.parametrize("after", range(8))
def test_a_job_that_is_given_up_leaves_nothing_wrong_to_the_next(after: int) -> None:
    scored = Scored(32)
    rows = rows_of([90, 91, 92], shared=60)
    given_up = job_of(rows)
    for _ in range(after):
        scored.scorer.advance(given_up, 32, scored.contexts.compute)
    scored.scorer.advance(given_up, 32, scored.contexts.interrupt)
    job = job_of([row[:80] for row in rows])
    answer = scored.weigh(job)
    check(answer, job)
    # The batch that was given up counts for nothing.
    assert answer.cached_tokens == min(60, 32 * after)


def test_the_context_grows_for_longer_prompts_and_then_stays() -> None:
    scored = Scored()
    for length in (40, 3000, 50, 4000, 4000):
        scored.weigh(job_of(rows_of([length]), options=FEW))
    assert [context.is_open for context in scored.contexts.made] == [False, False, True]
