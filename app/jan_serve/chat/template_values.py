"""Core messages and tools as the plain values that Hugging Face chat templates read. No rendering."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from jan_serve.core.messages import ImagePart, Message, Tool, ToolCall, ToolChoice
from jan_serve.errors import UnsupportedContent


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForm:
    """What a template wants messages to look like.

    object_arguments: arguments of calls as mappings; else as JSON text. list_content: content as a list of parts.
    null_content: no content, rather than an empty one, beside calls. descriptions: every tool and parameter has one.
    thought_field: the key of a message's reasoning.
    """

    object_arguments: bool = True
    list_content: bool = False
    null_content: bool = False
    descriptions: bool = False
    thought_field: str = "reasoning_content"


def template_messages(messages: tuple[Message, ...], form: MessageForm) -> list[dict[str, Any]]:
    """One mapping per turn. Text parts are joined as they are; absent keys stay absent, as templates test for them.

    Raises UnsupportedContent for an image: nothing is fetched or opened.
    """
    return [_message(message, index, form) for index, message in enumerate(messages)]


def template_tools(tools: tuple[Tool, ...], form: MessageForm) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's nesting; None when there are none, which is what templates test for."""
    return [_tool(tool, form) for tool in tools] or None


def template_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """As OpenAI writes it: a word, or an object that names the function."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def text_of(message: Message, index: int) -> str:
    """The message's text. Raises UnsupportedContent for an image."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts: list[str] = []
    for part in message.content:
        if isinstance(part, ImagePart):
            raise UnsupportedContent(
                f"messages[{index}].content: this model reads text only, and the message holds an image",
                param="messages",
            )
        texts.append(part.text)
    return "".join(texts)


def _message(message: Message, index: int, form: MessageForm) -> dict[str, Any]:
    text = text_of(message, index)
    content: Any = text
    if form.list_content and text:
        content = [{"type": "text", "text": text}]
    elif form.null_content and not text and message.tool_calls:
        content = None
    values: dict[str, Any] = {"role": message.role, "content": content}
    if message.name is not None:
        values["name"] = message.name
    if message.tool_calls:
        values["tool_calls"] = [_tool_call(call, form) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = message.tool_call_id
    if message.reasoning_content is not None:
        values[form.thought_field] = message.reasoning_content
    return values


def _tool_call(call: ToolCall, form: MessageForm) -> dict[str, Any]:
    arguments: Any = call.function.arguments
    if form.object_arguments:
        arguments = _as_object(arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _as_object(text: str) -> Any:
    """The arguments as a mapping; text that is none stays text, for the template to show as it is."""
    try:
        value: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return cast(Any, value) if isinstance(value, dict) else text


def _tool(tool: Tool, form: MessageForm) -> dict[str, Any]:
    parameters = _described(tool.parameters) if form.descriptions else tool.parameters
    function: dict[str, Any] = {"name": tool.name, "parameters": parameters}
    if tool.description is not None or form.descriptions:
        function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _described(parameters: dict[str, Any]) -> dict[str, Any]:
    properties: Any = parameters.get("properties")
    if not isinstance(properties, dict):
        return parameters
    known = cast(dict[str, Any], properties)
    described = {
        name: {"description": "", **cast(dict[str, Any], part)} if isinstance(part, dict) else part
        for name, part in known.items()
    }
    return {**parameters, "properties": described}
