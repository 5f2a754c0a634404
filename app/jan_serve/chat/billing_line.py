"""Leaves out the one line that is known to change with each request of a chat and says nothing to a model.

Claude Code begins its system prompt with ``x-anthropic-billing-header: …``, whose digits are new every time. As the
first tokens of a prompt they would have all of it computed again. Nothing else is ever left out.
"""

from __future__ import annotations

import re

import msgspec

from jan_serve.core.messages import Message, TextPart

_LINE = re.compile(r"\s*x-anthropic-billing-header:[^\n]*\n*", re.IGNORECASE)


def without_billing_line(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without that line at the start of the first one, if that is a system message."""
    if not messages or messages[0].role != "system":
        return messages
    first = messages[0]
    match first.content:
        case str() as text:
            content: str | tuple[object, ...] = _cut(text)
        case (TextPart() as part, *rest):
            text = _cut(part.text)
            content = (TextPart(text), *rest) if text else tuple(rest)
        case _:
            return messages
    if content == first.content:
        return messages
    return (msgspec.structs.replace(first, content=content), *messages[1:]) if content else messages[1:]


def _cut(text: str) -> str:
    match = _LINE.match(text)
    return text if match is None else text[match.end() :]
