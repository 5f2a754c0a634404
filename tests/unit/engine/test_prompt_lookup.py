"""Prompt lookup: what is guessed, when it pays, and what a step costs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jan_serve.engine.prompt_lookup import MAX_DRAFT, DraftRecord, StepCost, guess, worthwhile
from jan_serve.engine.tokens import Tokens


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def guessed(tokens: Tokens, *others: Tokens) -> tuple[list[int], int] | None:
    found = guess(tokens, others)
    return None if found is None else (found.tokens.tolist(), found.agreement)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (ids(), None),
        (ids(1, 2), None),
        (ids(1, 2, 3), None),
        (ids(1, 2, 3, 4, 5), None),
        (ids(1, 2, 3, 9, 1, 2, 3), ([9, 1, 2, 3], 3)),
        # Two tokens are not enough.
        (ids(7, 2, 3, 9, 8, 2, 3), None),
        # The longer agreement, though it is older.
        (ids(5, 1, 2, 3, 8, 6, 1, 2, 3, 9, 5, 1, 2, 3), ([8, 6, 1, 2, 3, 9, 5, 1, 2, 3], 4)),
        # The later one, where both agree equally.
        (ids(6, 1, 2, 3, 8, 7, 1, 2, 3, 9, 5, 1, 2, 3), ([9, 5, 1, 2, 3], 3)),
        # A run of one token overlaps itself.
        (ids(4, 4, 4, 4), ([4], 3)),
    ],
)
def test_the_continuation_of_the_longest_earlier_occurrence(
    tokens: Tokens, expected: tuple[list[int], int] | None
) -> None:
    assert guessed(tokens) == expected


def test_others_are_asked_where_the_sequence_itself_says_nothing() -> None:
    assert guessed(ids(1, 2, 3), ids(9, 9, 9, 9), ids(0, 1, 2, 3, 7, 8)) == ([7, 8], 3)
    assert guessed(ids(1, 2, 3, 5, 1, 2, 3), ids(0, 1, 2, 3, 7, 8)) == ([5, 1, 2, 3], 3)
    assert guessed(ids(1, 2, 3), ids(0, 1, 2, 3)) is None, "nothing follows it there"


def test_a_guess_has_a_limit() -> None:
    text = np.arange(100, dtype=np.int32)
    found = guess(np.concatenate((text, text[:3])))
    assert found is not None and found.tokens.tolist() == list(range(3, 3 + MAX_DRAFT))


def test_any_guess_is_what_followed_an_occurrence() -> None:
    random_ = random.Random(1)
    for _ in range(300):
        tokens = [random_.randrange(3) for _ in range(random_.randrange(3, 60))]
        found = guess(np.array(tokens, np.int32))
        end = tokens[-3:]
        starts = [i for i in range(len(tokens) - 3) if tokens[i : i + 3] == end]
        assert (found is not None) == bool(starts)
        if found is not None:
            continuation = found.tokens.tolist()
            pattern = tokens[-found.agreement :]
            assert any(
                tokens[i : i + len(pattern)] == pattern
                and tokens[i + len(pattern) :][: len(continuation)] == continuation
                for i in range(len(tokens) - len(pattern))
            )


@pytest.mark.parametrize(
    ("share", "token_s", "step_s", "streams", "expected"),
    [
        (0.9, 1.0, 2.0, 1, 6),  # 0.9 ** 6 = 0.53 is worth a half, 0.9 ** 7 is not
        (0.5, 1.0, 2.0, 1, 1),
        (0.4, 1.0, 2.0, 1, 0),
        (0.9, 1.0, 16.0, 8, 6),
        (0.9, 1.0, 8.0, 8, 0),  # a full batch has no use for drafts
        (0.9, 0.0, 2.0, 1, MAX_DRAFT),  # tokens are free on a large device
        (1.0, 1.0, 2.0, 1, MAX_DRAFT),
        (0.0, 1.0, 2.0, 1, 0),
        (0.9, 0.0, 0.0, 1, 0),  # nothing is known
    ],
)
def test_a_draft_is_as_long_as_it_pays(
    share: float, token_s: float, step_s: float, streams: int, expected: int
) -> None:
    assert worthwhile(share, token_s, step_s, streams) == expected


def test_a_record_learns_by_length_of_agreement() -> None:
    record = DraftRecord()
    before = record.share(3), record.share(20)
    for _ in range(20):
        record.observe(4, 5, 0)
        record.observe(30, 5, 5)
    assert record.share(3) < 0.05 < before[0]
    assert record.share(17) > 0.98 > before[1]
    assert record.share(9) == DraftRecord().share(9)


def test_what_was_not_drafted_counts_neither_way() -> None:
    record = DraftRecord()
    record.observe(4, 0, 0)
    assert record == DraftRecord()


def test_the_cost_of_a_token_is_learnt_from_steps_of_different_sizes() -> None:
    cost = StepCost()
    assert cost.token(0.25) == 0.25
    for _ in range(10):
        cost.observe(1, 3.0)
    assert cost.token(0.25) == 0.25, "steps of one size do not tell"
    assert cost.step(1, 0.25) == pytest.approx(3.0)
    for size in (2, 4, 8, 1, 16):
        cost.observe(size, 2.0 + size)
    assert cost.token(0.25) == pytest.approx(1.0)
    assert cost.step(5, 1.0) == pytest.approx(7.0)


def test_a_cost_is_never_negative() -> None:
    cost = StepCost()
    for size, seconds in ((1, 9.0), (8, 1.0), (2, 8.0)):
        cost.observe(size, seconds)
    assert cost.token(0.1) == 0.0
    assert cost.step(100, 0.0) >= 0.0
