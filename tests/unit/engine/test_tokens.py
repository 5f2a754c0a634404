"""TokenBuffer and common_prefix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.engine.tokens import TokenBuffer, Tokens, common_prefix

ids = st.lists(st.integers(0, 2**31 - 1), max_size=8)


def array(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


@given(ids, st.lists(st.integers(0, 9), max_size=200))
def test_behaves_like_a_list(start: list[int], more: list[int]) -> None:
    buffer = TokenBuffer(start)
    for token in more:
        buffer.append(token)
    expected = start + more
    assert len(buffer) == len(expected)
    assert buffer.view().tolist() == expected
    assert [buffer[i] for i in range(len(buffer))] == expected
    assert buffer.view(1, 3).tolist() == expected[1:3]


def test_index_is_checked_against_the_size_not_the_capacity() -> None:
    buffer = TokenBuffer([1, 2])
    buffer.append(3)
    assert buffer[-1] == 3
    with pytest.raises(IndexError):
        buffer[3]


def test_a_view_ends_where_the_tokens_end() -> None:
    buffer = TokenBuffer([1, 2])
    buffer.append(3)
    assert buffer.view(0, 100).tolist() == [1, 2, 3]


def test_views_stay_valid_while_the_buffer_grows() -> None:
    buffer = TokenBuffer([7, 8])
    view = buffer.view()
    for token in range(1000):
        buffer.append(token)
    assert view.tolist() == [7, 8]
    assert buffer.view(0, 2).tolist() == [7, 8]


def test_a_buffer_of_a_view_is_a_copy() -> None:
    first = TokenBuffer([1, 2])
    second = TokenBuffer(first.view())
    second.append(3)
    first.append(9)
    assert (first.view().tolist(), second.view().tolist()) == ([1, 2, 9], [1, 2, 3])


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
