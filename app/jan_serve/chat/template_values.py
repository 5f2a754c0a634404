"""Core messages and tools as the plain values that Hugging Face chat templates read. No rendering."""

from __future__ import annotations

from typing import Any

from jan_serve.core.messages import ImagePart, Message, Tool, ToolCall, ToolChoice
from jan_serve.errors import UnsupportedContent


def template_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """One mapping per turn. Text parts are joined as they are; absent keys stay absent, as templates test for them.

    Raises UnsupportedContent for an image: nothing is fetched or opened.
    """
    return [_message(message, index) for index, message in enumerate(messages)]


def template_tools(tools: tuple[Tool, ...]) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's nesting; None when there are none, which is what templates test for."""
    return [_tool(tool) for tool in tools] or None


def template_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """As OpenAI writes it: a word, or an object that names the function."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _message(message: Message, index: int) -> dict[str, Any]:
    values: dict[str, Any] = {"role": message.role, "content": _text(message, index)}
    if message.name is not None:
        values["name"] = message.name
    if message.tool_calls:
        values["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = message.tool_call_id
    if message.reasoning_content is not None:
        values["reasoning_content"] = message.reasoning_content
    return values


def _text(message: Message, index: int) -> str:
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


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
    if tool.description is not None:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}
