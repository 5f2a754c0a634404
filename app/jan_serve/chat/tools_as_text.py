"""Writes tools, calls and results as text in the messages, for templates that do not: calls as the instructions ask."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.chat.call_arguments import object_arguments
from jan_serve.chat.call_layout import (
    ArgumentSyntax,
    CallLayout,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    Parts,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.literals import is_word
from jan_serve.core.messages import ContentPart, FunctionCall, Message, TextPart, Tool, ToolCall

_JSON_TYPES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    str: "string",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


def write_calls(layout: CallLayout, calls: Sequence[ToolCall]) -> str:
    """Write the calls of one turn, in order."""
    written: list[str] = []
    for index, call in enumerate(calls, layout.first_index):
        slots = {
            Slot.NAME: call.function.name,
            Slot.INDEX: str(index),
            Slot.CALL_ID: call.id,
            Slot.ARGUMENTS: _arguments(layout.arguments, call.function.arguments),
        }
        written.append(_fill(layout.call, slots))
    return layout.opening + layout.separator.join(written) + layout.closing


def _fill(parts: Parts, slots: Mapping[Slot, str]) -> str:
    return "".join(part if isinstance(part, str) else slots[part] for part in parts)


def _arguments(syntax: ArgumentSyntax, text: str) -> str:
    values = object_arguments(text)
    match syntax:
        case JsonArguments():
            return _json(values)
        case TaggedArguments():
            return _tagged(syntax, values)
        case PythonArguments():
            return ", ".join(f"{name}={_python(value, syntax.json_words)}" for name, value in values.items())
        case GemmaArguments():
            return _gemma(values, syntax.quote)
        case NestedTagArguments():
            return _nested(values, syntax.prefix)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _raw_or_json(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _tagged(syntax: TaggedArguments, values: Mapping[str, Any]) -> str:
    return syntax.separator.join(
        _fill(
            syntax.argument,
            {
                Slot.KEY: name,
                Slot.VALUE: _raw_or_json(value),
                Slot.IS_STRING: _json(isinstance(value, str)),
                Slot.JSON_TYPE: _JSON_TYPES[type(value)],
            },
        )
        for name, value in values.items()
    )


def _python(value: object, json_words: bool) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            return "{" + ", ".join(f"{_json(k)}: {_python(v, json_words)}" for k, v in members) + "}"
        case list():
            return "[" + ", ".join(_python(item, json_words) for item in cast(list[object], value)) + "]"
        case None | bool() if not json_words:
            return repr(value)
        case _:
            return _json(value)


def _gemma(value: object, quote: str) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            written = (
                f"{name if is_word(name) else quote + name + quote}:{_gemma(member, quote)}"
                for name, member in members
            )
            return "{" + ",".join(written) + "}"
        case list():
            return "[" + ",".join(_gemma(item, quote) for item in cast(list[object], value)) + "]"
        case str():
            return quote + value + quote
        case _:
            return _json(value)


def _nested(value: object, prefix: str) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            return "".join(
                f"{prefix}<{name}>{_nested(member, prefix)}{prefix}</{name}>" for name, member in members
            )
        case list():
            items = cast(list[object], value)
            return "".join(f"{prefix}<item>{_nested(item, prefix)}{prefix}</item>" for item in items)
        case _:
            return _raw_or_json(value)


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
        *(_json(_described(tool)) for tool in tools),
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


def _described(tool: Tool) -> dict[str, object]:
    description = {} if tool.description is None else {"description": tool.description}
    return {"name": tool.name, **description, "parameters": tool.parameters}


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
