"""Only the billing line is removed."""

from __future__ import annotations

import pytest

from jan_serve.chat.billing_line import without_billing_line
from jan_serve.core.messages import ContentPart, ImagePart, Message, TextPart

LINE = "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli; cch=00a1b;"
USER = Message(role="user", content="Hi")


def cut(*messages: Message) -> list[str | tuple[ContentPart, ...] | None]:
    return [message.content for message in without_billing_line(messages)]


def system(content: str | tuple[ContentPart, ...]) -> Message:
    return Message(role="system", content=content)


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (LINE + "\nYou are helpful.", ["You are helpful.", "Hi"]),
        (LINE + "\n\nYou are helpful.\n" + LINE, ["You are helpful.\n" + LINE, "Hi"]),
        ("\n" + LINE.upper() + "\nYou", ["You", "Hi"]),
        (LINE, ["Hi"]),
        ((TextPart(LINE), TextPart("You")), [(TextPart("You"),), "Hi"]),
        ((TextPart(LINE + "\nAnd"), TextPart("You")), [(TextPart("And"), TextPart("You")), "Hi"]),
        ((TextPart(LINE),), ["Hi"]),
        # Some clients join the blocks of a system prompt without anything between them.
        (LINE + "You are a=b; helpful.\nAnd", ["You are a=b; helpful.\nAnd", "Hi"]),
        ("x-anthropic-billing-header: cch=1\nYou", ["You", "Hi"]),
        # Not at the start, or not that line.
        ("You are helpful.\n" + LINE, ["You are helpful.\n" + LINE, "Hi"]),
        ("x-anthropic-billing: 1\nYou", ["x-anthropic-billing: 1\nYou", "Hi"]),
        ((ImagePart("a"), TextPart(LINE)), [(ImagePart("a"), TextPart(LINE)), "Hi"]),
        ("", ["", "Hi"]),
        ((), [(), "Hi"]),
    ],
)
def test_only_the_first_line_of_a_system_prompt_is_removed(
    content: str | tuple[ContentPart, ...], left: list[str | tuple[ContentPart, ...]]
) -> None:
    assert cut(system(content), USER) == left


def test_the_line_stays_in_other_roles_and_places() -> None:
    user = Message(role="user", content=LINE + "\nWhat is that?")
    assert cut(user) == [user.content]
    assert cut(USER, system(LINE)) == ["Hi", LINE]
    assert cut() == []


def test_messages_without_the_line_are_not_copied() -> None:
    messages = (system("You"), USER)
    assert without_billing_line(messages) is messages
