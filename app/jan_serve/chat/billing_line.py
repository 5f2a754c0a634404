"""Removes Claude Code's billing line from a system prompt.

The system prompt begins with ``x-anthropic-billing-header: …``, whose digits change with every request. At the start of
a prompt it would make every cached prefix useless. Nothing else is removed.
"""

from __future__ import annotations

import re

import msgspec

from jan_serve.core.messages import Message, TextPart

_LINE = re.compile(
    r"\s*x-anthropic-billing-header:(?:[ \t]+[\w-]+=[^;\s]*;?)*(?:[ \t]*\n+|[ \t]*\Z)?", re.IGNORECASE
)
"""Its fields are `name=value;`. What follows the last one on the same line is the prompt."""


def without_billing_line(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without the billing line, which is only removed from the start of a leading system message."""
    if not messages or messages[0].role != "system":
        return messages
    first = messages[0]
    match first.content:
        case str() as text:
            content: str | tuple[object, ...] = cut_billing_line(text)
        case (TextPart() as part, *rest):
            text = cut_billing_line(part.text)
            content = (TextPart(text), *rest) if text else tuple(rest)
        case _:
            return messages
    if content == first.content:
        return messages
    return (msgspec.structs.replace(first, content=content), *messages[1:]) if content else messages[1:]


def cut_billing_line(text: str) -> str:
    """The text of a system prompt without the line."""
    match = _LINE.match(text)
    return text if match is None else text[match.end() :]
