"""Names and lines that clients made for Claude send."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.messages import Message
from jan_serve.dialects.anthropic.claude_clients import names_for
from jan_serve.dialects.anthropic.messages.parse import chat_prompt
from jan_serve.dialects.anthropic.messages.wire import CountTokensRequest


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", ("qwen3",)),
        ("sonnet-finetune", ("sonnet-finetune",)),
        ("opus", ("opus", "claude")),
        ("claude", ("claude",)),
        ("claude-3-5-haiku-latest", ("claude-3-5-haiku-latest", "haiku", "claude")),
        ("Claude-Opus-4-8", ("Claude-Opus-4-8", "opus", "claude")),
        ("us.anthropic.claude-sonnet-4-v1:0", ("us.anthropic.claude-sonnet-4-v1:0", "sonnet", "claude")),
        ("claude-next", ("claude-next", "claude")),
    ],
)
def test_the_names_to_look_up(name: str, expected: tuple[str, ...]) -> None:
    assert names_for(name) == expected


LINE = "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli; cch=00a1b;"
USER = Message(role="user", content="Hi")


def messages_of(system: Any, first: str = "Hi", *, strips: bool = True) -> tuple[Message, ...]:
    body = {"model": "m", "system": system, "messages": [{"role": "user", "content": first}]}
    prompt, _ = chat_prompt(CountTokensRequest.model_validate(body), strip_billing_line=strips)
    return prompt.messages


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("system", "left"),
    [
        (LINE + "\nYou are helpful.", "You are helpful."),
        (LINE + "\n\nYou are helpful.\n" + LINE, "You are helpful.\n" + LINE),
        ("\n" + LINE.upper() + "\nYou", "You"),
        (LINE, None),
        (blocks(LINE, "You"), "You"),
        (blocks(LINE + "\nAnd", "You"), "And\n\nYou"),
        (blocks(LINE), None),
        # Some clients join the blocks of a system prompt without anything between them.
        (LINE + "You are a=b; helpful.\nAnd", "You are a=b; helpful.\nAnd"),
        ("x-anthropic-billing-header: cch=1\nYou", "You"),
        # Not at the start, or not that line.
        ("You are helpful.\n" + LINE, "You are helpful.\n" + LINE),
        (blocks("You", LINE), "You\n\n" + LINE),
        ("x-anthropic-billing: 1\nYou", "x-anthropic-billing: 1\nYou"),
        ("", None),
        ([], None),
    ],
)
def test_only_the_first_line_of_a_system_prompt_is_removed(system: object, left: str | None) -> None:
    instructions = () if left is None else (Message(role="system", content=left),)
    assert messages_of(system) == (*instructions, USER)


def test_the_line_stays_in_other_roles_and_where_the_settings_keep_it() -> None:
    assert messages_of(None, LINE + "\nHi") == (Message(role="user", content=LINE + "\nHi"),)
    assert messages_of(LINE + "\nYou", strips=False)[0].content == LINE + "\nYou"
