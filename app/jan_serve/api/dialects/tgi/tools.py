"""TGI's tools: the answer is a JSON object that names a function, or `no_tool` where the model may choose. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, cast

from jan_serve.api.dialects.tgi.errors import ToolFailed
from jan_serve.api.dialects.tgi.wire_chat import ChatRequest, NamedTool, Tool
from jan_serve.core.constraint import JsonSchemaConstraint

NO_TOOL: Final = "no_tool"
_NO_TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"content": {"type": "string", "description": "The response content"}},
    "required": ["content"],
}
_PROMPT: Final = (
    "\nAnswer with a JSON object that calls one of the functions with fitting arguments, in the form"
    ' {"name": function name, "parameters": its arguments}. Use no variables.\n'
)


def offered(body: ChatRequest) -> list[Tool]:
    """The tools that the answer may call; none where it has to be text. Raises ToolFailed for an unknown name."""
    tools = body.tools or []
    choice = body.tool_choice
    if not tools or choice == "none":
        return []
    if choice in (None, "auto", "required"):
        return tools
    name = choice.function.name if isinstance(choice, NamedTool) else choice
    named = [tool for tool in tools if tool.function.name == name]
    if not named:
        raise ToolFailed(f"Tool with name {name} not found")
    return named


def may_decline(body: ChatRequest) -> bool:
    """Whether the model may answer with text instead."""
    return body.tool_choice in (None, "auto")


def tool_constraint(tools: list[Tool], *, decline: bool) -> JsonSchemaConstraint:
    """`{"function": {"_name": …, arguments…}}` for each tool."""
    functions = [_function(tool.function.name, tool.function.parameters) for tool in tools]
    if decline:
        functions.append(_function(NO_TOOL, _NO_TOOL))
    return JsonSchemaConstraint(
        {
            "type": "object",
            "properties": {"function": {"anyOf": functions}},
            "required": ["function"],
            "additionalProperties": False,
        }
    )


def _function(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    properties: Any = parameters.get("properties")
    required: Any = parameters.get("required")
    own = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
    needed = cast(list[Any], required) if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {"_name": {"const": name}, **own},
        "required": ["_name", *needed],
        "additionalProperties": False,
    }


def tool_prompt(body: ChatRequest) -> str:
    """What is added to the last message."""
    return f"\n---\n{body.tool_prompt or _PROMPT}"


class Called(NamedTuple):
    """A call that the model wrote. arguments: compact JSON text."""

    name: str
    arguments: str


def read_call(text: str) -> Called:
    """Raises ToolFailed for text that a limit cut off."""
    try:
        function: Any = json.loads(text)["function"]
        name: str = function.pop("_name")
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(f"Failed to parse generated text: {error}") from None
    return Called(name, json.dumps(function, ensure_ascii=False, separators=(",", ":")))
