"""Tools, calls and results as text in the messages, for templates that do not write them.

Calls use the format's layout, so a history shows them as the instructions ask for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from jan_serve.chat.call_writer import write_calls
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.messages import ContentPart, FunctionCall, Message, TextPart, Tool, ToolCall

Content = str | tuple[ContentPart, ...] | None

_EXAMPLE: Final = ToolCall("call00000", FunctionCall("function_name", '{"argument_name": "value"}'))


def tool_instructions(tools: Sequence[Tool], chat_format: ChatFormat) -> str:
    """The text that lists the tools and explains how to call them."""
    count = (
        "Several calls may follow one another" if chat_format.calls.parallel else "Write one call at a time"
    )
    lines = [
        "You can call functions to help with the user's request. They are listed below, one JSON object a line,"
        " with the JSON Schema of their arguments:",
        "",
        "<tools>",
        *(_description(tool) for tool in tools),
        "</tools>",
        "",
        "To call a function, write exactly this, with its name and arguments in place:",
        "",
        write_calls(chat_format.calls, [_EXAMPLE]),
        "",
        f"{count}. Then stop: the results come with the next message, in <tool_response> tags."
        " If no function is needed, answer as usual.",
    ]
    return "\n".join(lines)


def with_tools_as_text(
    messages: Sequence[Message], tools: Sequence[Tool], chat_format: ChatFormat, *, calls_too: bool
) -> tuple[Message, ...]:
    """The messages with instructions appended to the system message, which is created if missing.

    calls_too: the template does not write calls and results either; calls become text of the assistant's turn, and
    each run of results becomes one user turn. Without tools, no instructions are added.
    """
    folded = with_results_as_text(with_calls_as_text(messages, chat_format)) if calls_too else list(messages)
    if not tools:
        return tuple(folded)
    text = tool_instructions(tools, chat_format)
    if folded and folded[0].role == "system":
        system = msgspec.structs.replace(folded[0], content=joined_content(folded[0].content, text))
        return (system, *folded[1:])
    return (Message(role="system", content=text), *folded)


def with_calls_as_text(messages: Sequence[Message], chat_format: ChatFormat) -> tuple[Message, ...]:
    """The messages with each turn's calls as text, for templates that write results but not calls."""
    return tuple(with_call_text(message, chat_format) for message in messages)


def with_call_text(message: Message, chat_format: ChatFormat) -> Message:
    """The message with its calls as text after its own."""
    if not message.tool_calls:
        return message
    content = joined_content(
        message.content, write_calls(chat_format.calls, message.tool_calls), between="\n"
    )
    return msgspec.structs.replace(message, content=content, tool_calls=())


def with_results_as_text(messages: Iterable[Message]) -> list[Message]:
    """The messages with each run of results as one turn of the user."""
    folded: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message.role in ("tool", "function")
        if is_result:
            content = joined_content("<tool_response>", message.content, "</tool_response>", between="\n")
            if after_result:
                content = joined_content(folded.pop().content, content, between="\n")
            message = Message(role="user", content=content)
        folded.append(message)
        after_result = is_result
    return folded


def _description(tool: Tool) -> str:
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    return json.dumps({**function, "parameters": tool.parameters}, ensure_ascii=False)


def joined_content(*contents: Content, between: str = "\n\n") -> Content:
    """The contents concatenated, with `between` as separator; a list of parts stays a list."""
    if all(content is None or isinstance(content, str) for content in contents):
        return between.join(content for content in contents if isinstance(content, str) and content)
    parts: list[ContentPart] = []
    for content in contents:
        if not content:
            continue
        if parts:
            parts.append(TextPart(between))
        parts += [TextPart(content)] if isinstance(content, str) else content
    return tuple(parts)
