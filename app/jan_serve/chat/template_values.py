"""Converts messages and tools to the plain values that Hugging Face chat templates read."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from jan_serve.chat.call_arguments import arguments_text, object_arguments
from jan_serve.chat.template_traits import EFFORTS, PLAIN_EFFORTS, TemplateTraits
from jan_serve.core.messages import ImagePart, Message, TextPart, Tool, ToolCall, ToolChoice
from jan_serve.core.request import THINKING_SWITCH, ChatPrompt
from jan_serve.errors import UnsupportedContent


def template_messages(
    messages: tuple[Message, ...], traits: TemplateTraits, thought_field: str
) -> list[dict[str, Any]]:
    """One mapping per turn. Text parts are concatenated; absent keys stay absent, because templates test for them.

    thought_field: the key of a message's reasoning. Raises UnsupportedContent for an image, which is never fetched.
    """
    return [_message(message, index, traits, thought_field) for index, message in enumerate(messages)]


def template_tools(tools: tuple[Tool, ...], *, plain: bool = False) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's nesting; None if there are none, because templates test for None.

    plain: with all that a template may look for in a tool: a description of each tool and parameter, one type where
    there are several, objects with properties, and nothing that is null.
    """
    return [_tool(tool, plain) for tool in tools] or None


def template_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """The choice in OpenAI's notation: a word, or an object with the function's name."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def template_effort(effort: Any, traits: TemplateTraits) -> Any:
    """`reasoning_effort` as a word that the template takes: the nearest one, of two the higher. Others stay."""
    if effort not in EFFORTS or effort in traits.efforts:
        return effort
    if effort == "none" and traits.no_effort is not None:
        return traits.no_effort
    plain = PLAIN_EFFORTS.get(effort, effort)
    wanted = EFFORTS.index(plain)
    return min(reversed(traits.efforts), key=lambda word: abs(EFFORTS.index(word) - wanted), default=plain)


_OTHER_SWITCHES: Final = {
    "thinking": (True, False),
    "reasoning": (True, False),
    "thinking_mode": ("enabled", "disabled"),
    "thinking_budget": (None, 0),
}
"""Values that turn thinking on and off in templates without the usual switch; None: the variable stays absent."""


_HAS_DEFAULT: Final = re.compile(rf"\b{THINKING_SWITCH}\s*(is\s+(not\s+)?defined\b|\|\s*default\b)")
"""A template that says itself what an absent switch means."""


def thinking_values(prompt: ChatPrompt, source: str, traits: TemplateTraits) -> dict[str, Any]:
    """The variables that switch thinking, as the request says. Where it says nothing, the usual one is on in templates
    that do not foresee its absence: `not enable_thinking` would switch thinking off."""
    if prompt.asks_for_thoughts is None:
        return {} if _HAS_DEFAULT.search(source) else {THINKING_SWITCH: True}
    values: dict[str, Any] = {THINKING_SWITCH: prompt.thinks}
    if THINKING_SWITCH not in source:
        chosen = {name: on if prompt.thinks else off for name, (on, off) in _OTHER_SWITCHES.items()}
        values |= {name: value for name, value in chosen.items() if value is not None}
        if traits.no_effort is not None:
            values["reasoning_effort"] = template_effort("medium" if prompt.thinks else "none", traits)
    return values


def text_of(message: Message, index: int) -> str:
    """The message's text parts, concatenated. Raises UnsupportedContent for an image or audio."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts: list[str] = []
    for part in message.content:
        if not isinstance(part, TextPart):
            what = "an image" if isinstance(part, ImagePart) else "audio"
            raise UnsupportedContent(
                f"messages[{index}].content: this model reads text only, and the message holds {what}",
                param="messages",
            )
        texts.append(part.text)
    return "".join(texts)


def _message(message: Message, index: int, traits: TemplateTraits, thought_field: str) -> dict[str, Any]:
    text = text_of(message, index)
    content: Any = text
    if traits.null_content and not text and message.tool_calls:
        content = None
    elif traits.list_content:
        content = [{"type": "text", "text": text}]
    values: dict[str, Any] = {"role": message.role, "content": content}
    if message.name is not None:
        values["name"] = message.name
    if message.tool_calls:
        values["tool_calls"] = [_tool_call(call, traits) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = message.tool_call_id
    if message.reasoning_content is not None:
        values[thought_field] = message.reasoning_content
    return values


def _tool_call(call: ToolCall, traits: TemplateTraits) -> dict[str, Any]:
    values = object_arguments(call.function.arguments)
    arguments: Any = values if traits.object_arguments else arguments_text(call.function.arguments, values)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _tool(tool: Tool, plain: bool) -> dict[str, Any]:
    parameters = _plain_schema({"type": "object", **tool.parameters}) if plain else tool.parameters
    function: dict[str, Any] = {"name": tool.name, "parameters": parameters}
    if tool.description is not None or plain:
        function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _plain_schema(schema: Any) -> dict[str, Any]:
    """The schema with one type at each place, in small letters, and schemas for all members of objects and arrays."""
    known = cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
    plain = {name: value for name, value in known.items() if value is not None}
    kinds: Any = plain.pop("type", None)
    words = cast(list[Any], kinds) if isinstance(kinds, list) else [kinds]
    kind = next((word.lower() for word in words if isinstance(word, str) and word.lower() != "null"), None)
    if kind is not None:
        plain["type"] = kind
    if kind == "object" or "properties" in plain:
        properties: Any = plain.get("properties")
        members = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
        plain["properties"] = {name: _described(_plain_schema(part)) for name, part in members.items()}
    if kind in ("object", "array"):
        of_members = "items" if kind == "array" else "additionalProperties"
        plain[of_members] = _plain_schema(plain.get(of_members))
    return plain


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if isinstance(schema.get("description"), str) else {**schema, "description": ""}
