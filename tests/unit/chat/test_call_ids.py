"""Ids of calls: unique in the chat, in the template's style."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from jan_serve.chat.call_ids import CallIds, ids_in
from jan_serve.chat.chat_format import IdStyle
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


def test_a_random_source_that_repeats_raises() -> None:
    ids = CallIds(IdStyle.PLAIN, ["call_x"], lambda: "x")
    with pytest.raises(RuntimeError, match="1000 attempts"):
        ids("f")
