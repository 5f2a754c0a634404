"""Ids of calls in a template's style, unique in a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from jan_serve.chat.call_layout import CallIds, IdStyle, ids_in
from jan_serve.core.messages import FunctionCall, Message, ToolCall


def drawing(*texts: str) -> Callable[[], str]:
    left: Iterator[str] = iter(texts)
    return lambda: next(left)


def test_ids_in_a_chat() -> None:
    call = ToolCall("a", FunctionCall("f", "{}"))
    chat = [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="b"),
        Message(role="user"),
    ]
    assert ids_in(chat) == {"a", "b"}


def test_plain_ids_are_unique() -> None:
    ids = CallIds(IdStyle.PLAIN, ["call_x"], drawing("x", "y", "y", "z"))
    assert [ids("f"), ids("f")] == ["call_y", "call_z"]


def test_ids_of_nine_characters_are_unique() -> None:
    ids = CallIds(IdStyle.NINE_CHARACTERS, [], drawing("abcdefghijk", "abcdefghixx", "123456789"))
    assert [ids("f"), ids("f")] == ["abcdefghi", "123456789"]


def test_function_index_counts_over_the_chat() -> None:
    ids = CallIds(IdStyle.FUNCTION_INDEX, ["functions.f:0", "functions.f:2"], drawing())
    assert [ids("f"), ids("g"), ids("f")] == ["functions.f:3", "functions.g:4", "functions.f:5"]


@pytest.mark.parametrize(
    ("style", "own", "stays"),
    [
        (IdStyle.PLAIN, "9a1-b_C", True),
        (IdStyle.PLAIN, "a b", False),
        (IdStyle.PLAIN, "taken", False),
        (IdStyle.PLAIN, "x" * 41, False),
        (IdStyle.NINE_CHARACTERS, "abcdefgh1", True),
        (IdStyle.NINE_CHARACTERS, "abc", False),
        (IdStyle.FUNCTION_INDEX, "functions.f:7", True),
        (IdStyle.FUNCTION_INDEX, "functions.g:7", False),
        (IdStyle.FUNCTION_INDEX, "f:7", False),
    ],
)
def test_the_id_that_a_model_writes_stays_if_it_is_new_and_of_the_style(
    style: IdStyle, own: str, stays: bool
) -> None:
    ids = CallIds(style, ["taken"], drawing("123456789", "987654321"))
    assert (ids("f", own) == own) == stays
    assert ids("f", own) != own


def test_a_random_source_that_repeats_raises() -> None:
    ids = CallIds(IdStyle.PLAIN, ["call_x"], lambda: "x")
    with pytest.raises(RuntimeError, match="1000 attempts"):
        ids("f")
