"""TGI's chat request as core messages and native parameters.

With tools, the answer is a JSON object that names a function, or `no_tool` if the model may decline. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

from jan_serve.core import messages as core
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.dialects.tgi.chat.wire import ChatRequest, Function, ImageChunk, Message, NamedTool, Tool
from jan_serve.dialects.tgi.errors import ToolFailed, ValidationFailed
from jan_serve.dialects.tgi.generate.parse import sampled_parameters
from jan_serve.dialects.tgi.generate.wire import Parameters

_PENALTY_SHIFT: Final = 2.0


def chat_messages(body: ChatRequest, added: str) -> tuple[core.Message, ...]:
    """The messages for the template. added: text at the end of the last one. Raises ValidationFailed."""
    if not body.messages:
        raise ValidationFailed("`messages` cannot be empty")
    texts = [_text(message) for message in body.messages]
    texts[-1] += added
    return tuple(
        core.Message(role="system" if message.role == "developer" else message.role, content=text)
        for message, text in zip(body.messages, texts, strict=True)
    )


def _text(message: Message) -> str:
    if message.content is None:
        return json.dumps(message.tool_calls, ensure_ascii=False, separators=(",", ":"))
    if isinstance(message.content, str):
        return message.content
    return "".join(
        f"![]({chunk.image_url.url})" if isinstance(chunk, ImageChunk) else chunk.text
        for chunk in message.content
    )


def continues_answer(body: ChatRequest) -> bool:
    """Whether the last message begins the answer, which continues it."""
    return body.messages[-1].role == "assistant"


def chat_parameters(body: ChatRequest) -> Parameters:
    """Raises ToolFailed."""
    if body.tools is not None and body.response_format is not None:
        raise ToolFailed("Grammar and tools are mutually exclusive")
    shifted = None if body.presence_penalty is None else body.presence_penalty + _PENALTY_SHIFT
    return sampled_parameters(
        body, repetition_penalty=shifted, top_n_tokens=body.top_logprobs, grammar=body.response_format
    )


NO_TOOL: Final = "no_tool"
_DEFINITIONS: Final = ("$defs", "definitions")
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""

_NO_TOOL: Final = Tool(
    type="function",
    function=Function(
        name=NO_TOOL,
        description="Answer with a text, without any of the other functions",
        parameters={
            "type": "object",
            "properties": {"content": {"type": "string", "description": "The response content"}},
            "required": ["content"],
        },
    ),
)
_PROMPT: Final = (
    "\nAnswer with a JSON object that calls one of the functions with fitting arguments, in the form"
    ' {"name": function name, "parameters": its arguments}. Use no variables.\n'
)


def offered(body: ChatRequest) -> list[Tool]:
    """The tools that the answer may call, with `no_tool` last if the model may decline. Empty: the answer is text.

    Raises ToolFailed for an unknown name.
    """
    tools = body.tools or []
    choice = body.tool_choice
    if not tools or choice == "none":
        return []
    if choice in (None, "auto"):
        return [*tools, _NO_TOOL]
    if choice == "required":
        return tools
    name = choice.function.name if isinstance(choice, NamedTool) else choice
    named = [tool for tool in tools if tool.function.name == name]
    if not named:
        raise ToolFailed(f"Tool with name {name} not found")
    return named


def tool_constraint(tools: list[Tool]) -> JsonSchemaConstraint:
    """`{"function": {"_name": …, arguments…}}` for each tool."""
    return JsonSchemaConstraint(
        {
            "type": "object",
            "properties": {"function": {"anyOf": [_call_schema(*numbered) for numbered in enumerate(tools)]}},
            "required": ["function"],
            "additionalProperties": False,
            **_definitions(tools),
        }
    )


def _definitions(tools: list[Tool]) -> dict[str, Any]:
    """The targets of `#/$defs/…` references: the arguments' schemas are parts of one document now."""
    found: dict[str, Any] = {}
    for number, tool in enumerate(tools):
        for keyword in _DEFINITIONS:
            own: Any = tool.function.parameters.get(keyword)
            if isinstance(own, dict):
                named = cast(dict[str, Any], own).items()
                found.setdefault(keyword, {}).update(
                    {f"{number}.{name}": _numbered(schema, number) for name, schema in named}
                )
    return found


def _numbered(schema: Any, number: int) -> Any:
    """A schema whose references lead to the definitions of its tool: several tools may use one name."""
    if isinstance(schema, list):
        return [_numbered(item, number) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _numbered_reference(value, number)
        if key == "$ref" and isinstance(value, str)
        else value
        if key in _VALUES
        else _numbered(value, number)
        for key, value in cast(dict[str, Any], schema).items()
    }


def _numbered_reference(reference: str, number: int) -> str:
    for keyword in _DEFINITIONS:
        start = f"#/{keyword}/"
        if reference.startswith(start):
            return f"{start}{number}.{reference.removeprefix(start)}"
    return reference


def _call_schema(number: int, tool: Tool) -> dict[str, Any]:
    function = tool.function
    properties: Any = _numbered(function.parameters.get("properties"), number)
    required: Any = function.parameters.get("required")
    own = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
    needed = cast(list[Any], required) if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {"_name": {"const": function.name}, **own},
        "required": ["_name", *needed],
        "additionalProperties": False,
    }


def tool_prompt(body: ChatRequest, tools: list[Tool], *, shown: bool) -> str:
    """The text to add to the last message. shown: the template writes the tools itself."""
    listed = ""
    if not shown:
        fields = ("description", "name", "parameters")
        values = [
            {"type": tool.type, "function": {name: getattr(tool.function, name) for name in fields}}
            for tool in tools
        ]
        listed = json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"
    return f"\n---\n{listed}{body.tool_prompt or _PROMPT}"


def core_tools(tools: list[Tool]) -> tuple[core.Tool, ...]:
    functions = [tool.function for tool in tools]
    return tuple(
        core.Tool(name=each.name, description=each.description, parameters=each.parameters)
        for each in functions
    )


def read_call(text: str) -> tuple[str, str]:
    """The name, and the arguments as compact JSON. Raises ToolFailed if a limit cut the text off."""
    try:
        function: Any = json.loads(text)["function"]
        name: str = function.pop("_name")
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(f"Failed to parse generated text: {error}") from None
    return name, json.dumps(function, ensure_ascii=False, separators=(",", ":"))
