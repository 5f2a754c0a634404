"""What a template must contain for a format, and whether a prompt ends inside a thought."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jan_serve.chat.chat_format import Signature, Thought
from jan_serve.chat.formats.hermes import HERMES

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
