"""TokenBuffer and common_prefix."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.engine.tokens import PrefixMark, TokenBuffer, Tokens, common_prefix


def array(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def test_views_stay_valid_while_the_buffer_grows() -> None:
    buffer = TokenBuffer([7, 8])
    view = buffer.view()
    for token in range(1000):
        buffer.append(token)
    assert view.tolist() == [7, 8]
    assert buffer.view(0, 2).tolist() == [7, 8]


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [
        (array(), array(), 0),
        (array(), array(1), 0),
        (array(1), array(2), 0),
        (array(1), array(1), 1),
        (array(1, 2, 3), array(1, 2), 2),
        (array(1, 2, 3), array(1, 9, 3), 1),
        (array(5, 2, 3), array(1, 2, 3), 0),
    ],
)
def test_common_prefix(a: Tokens, b: Tokens, length: int) -> None:
    assert common_prefix(a, b) == common_prefix(b, a) == length


TOKENS = np.array([1, 2, 3, 151_935, 0, 2, 1], np.int32)
MARKS = [
    PrefixMark.of("a 1.0"),
    PrefixMark.of("a 0.5"),
    PrefixMark.of("b 1.0"),
    PrefixMark.of("a 1.0", "b 1.0"),
]


PINNED = [681946801, -193567636, -1069082073, -296399941, 1557461238, -193567636, 681946801]
"""Files of states are found by it after an update too."""


def test_equal_prefixes_stay_equal_under_one_mark() -> None:
    longer = np.append(TOKENS[:5], np.array([9, 9], np.int32))
    for mark in MARKS:
        marked = mark.apply(TOKENS)
        assert (marked.dtype, marked.shape) == (np.int32, TOKENS.shape)
        assert common_prefix(marked, mark.apply(TOKENS)) == len(TOKENS)
        assert common_prefix(marked, mark.apply(longer)) == 5
        assert marked[1] == marked[5]


def test_every_token_differs_under_two_marks() -> None:
    views = [TOKENS, *(mark.apply(TOKENS) for mark in MARKS)]
    for i, one in enumerate(views):
        assert all(not np.any(one == other) for other in views[i + 1 :])


def test_marks_are_the_same_in_every_process() -> None:
    assert PrefixMark.of("a 1.0") == MARKS[0] == PrefixMark(MARKS[0].factor, MARKS[0].offset)
    assert PrefixMark.of("digest 1.0").apply(TOKENS).tolist() == PINNED
