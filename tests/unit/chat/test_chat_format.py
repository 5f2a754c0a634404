"""These tests detect formats, templates that show tools and prompts that end inside a thought, and make ids of calls in
a template's style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from jan_serve.chat.chat_format import CallIds, IdStyle, Signature, Thought, ids_in
from jan_serve.chat.detect import FORMATS, knows_tools
from jan_serve.chat.formats.hermes import HERMES
from jan_serve.core.messages import FunctionCall, Message, ToolCall

THOUGHT = Thought(opens=("<think>\n", "<reason>"), closes=("</think>",))


@pytest.mark.parametrize(
    ("signature", "template", "matches"),
    [
        (Signature(), "", True),
        (Signature(all_of=("a", "b")), "b a", True),
        (Signature(all_of=("a", "b")), "a", False),
        (Signature(any_of=("a", "b")), "b", True),
        (Signature(any_of=("a", "b")), "c", False),
        (Signature(all_of=("a",), none_of=("b",)), "a", True),
        (Signature(all_of=("a",), none_of=("b",)), "ab", False),
        (Signature(all_of=("a",), any_of=("b", "c"), none_of=("d",)), "ac", True),
    ],
)
def test_signatures(signature: Signature, template: str, matches: bool) -> None:
    assert signature.matches(template) is matches


@pytest.mark.parametrize(
    ("template", "writes"), [("x<think>y", True), ("</think>", True), ("think", False), (None, False)]
)
def test_whether_a_template_writes_thoughts(template: str | None, writes: bool) -> None:
    """White space around a marker may be written apart from it."""
    assert THOUGHT.is_in(template) is writes


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("Hi<think>", True),
        ("Hi<think>\n\n", True),
        ("Hi<reason>", True),
        ("<think>Hi", False),
        ("<think></think>", False),
        ("", False),
    ],
)
def test_whether_the_prompt_begins_the_thought(prompt: str, opens: bool) -> None:
    assert replace(HERMES, thought=THOUGHT).prompt_opens_thought(prompt) is opens


def test_a_format_without_thoughts_begins_none() -> None:
    assert not replace(HERMES, thought=None).prompt_opens_thought("<think>")


def test_format_names_are_unique() -> None:
    names = [chat_format.name for chat_format in FORMATS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("template", "knows"),
    [
        (None, False),
        ("", False),
        ("{% if tools %}x{% endif %}", True),
        ("{{ tools | tojson }}", True),
        ("{%- for tool in available_tools -%}", True),
        ("You have tools. {{ messages }}", False),
        ("{{ 'no tools here' }}", False),
        ("{{ message.tools }}", False),
    ],
)
def test_templates_that_show_tools(template: str | None, knows: bool) -> None:
    assert knows_tools(template) == knows


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
