"""Prompt lookup: what is guessed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jan_serve.engine.drafting.prompt_lookup import TokenHistory, guess
from jan_serve.engine.tokens import Tokens


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def history(tokens: Tokens, *sizes: int) -> TokenHistory:
    """The history of a sequence that had so many tokens each time it was looked at, and then all."""
    made = TokenHistory()
    for size in (*sizes, len(tokens)):
        made.catch_up(tokens[:size])
    return made


def guessed(tokens: Tokens, *others: Tokens) -> tuple[list[int], int] | None:
    found = guess(history(tokens), [history(other) for other in others])
    return None if found is None else (found.tokens.tolist(), found.match_length)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (ids(), None),
        (ids(1, 2), None),
        (ids(1, 2, 3), None),
        (ids(1, 2, 3, 4, 5), None),
        (ids(1, 2, 3, 9, 1, 2, 3), ([9, 1, 2, 3], 3)),
        # Cells of an image are neither matched nor guessed.
        (ids(1, 2, 3, -5, -6, -7, 9, 1, 2, 3), ([9, 1, 2, 3], 3)),
        (ids(-5, -6, -7, 9, -5, -6, -7), None),
        # Two tokens are not enough.
        (ids(7, 2, 3, 9, 8, 2, 3), None),
        # The longer match_length, though it is older.
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


def test_any_guess_is_what_followed_an_occurrence() -> None:
    random_ = random.Random(1)
    for _ in range(300):
        tokens = [random_.randrange(3) for _ in range(random_.randrange(3, 60))]
        found = guess(history(np.array(tokens, np.int32), *sorted(random_.choices(range(len(tokens)), k=3))))
        end = tokens[-3:]
        starts = [i for i in range(len(tokens) - 3) if tokens[i : i + 3] == end]
        assert (found is not None) == bool(starts)
        if found is not None:
            continuation = found.tokens.tolist()
            pattern = tokens[-found.match_length :]
            assert any(
                tokens[i : i + len(pattern)] == pattern
                and tokens[i + len(pattern) :][: len(continuation)] == continuation
                for i in range(len(tokens) - len(pattern))
            )


def test_of_a_long_prompt_the_end_is_searched() -> None:
    text = np.arange(40_000, dtype=np.int32)
    assert guessed(np.concatenate((text, text[:3]))) is None
    found = guessed(np.concatenate((text, text[-1003:-1000])))
    assert found is not None and found[0][0] == 39_000
