"""The tools of a request as models see them, and the way back from a call to the tool that was meant. Pure.

Models know functions with plain names. A custom tool becomes a function of one text; a tool of a namespace has its
namespace before its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from jan_serve.api.dialects.openai.responses.custom_input import FIELD
from jan_serve.api.dialects.openai.responses.wire_tools import (
    AllowedTools,
    CustomTool,
    FunctionTool,
    HostedChoice,
    HostedTool,
    NamedChoice,
    NamespaceTool,
)
from jan_serve.api.dialects.openai.responses.wire_tools import Tool as WireTool
from jan_serve.api.dialects.openai.responses.wire_tools import ToolChoice as WireChoice
from jan_serve.core.messages import Tool, ToolChoice
from jan_serve.errors import InvalidRequest

_BETWEEN: Final = "__"


def flat_name(namespace: str | None, name: str) -> str:
    """What models call the tool."""
    if not namespace:
        return name
    return namespace + ("" if namespace.endswith(_BETWEEN) else _BETWEEN) + name


@dataclass(frozen=True, slots=True)
class Callee:
    """A tool as the client knows it."""

    name: str
    namespace: str | None = None
    custom: bool = False


class ToolBook:
    """The tools that a model is shown. warnings: what of the request's tools is not so."""

    def __init__(self, tools: list[WireTool]) -> None:
        """Raises InvalidRequest for two tools that a model could not tell apart."""
        self.warnings: list[str] = []
        self.shown: list[WireTool] = []
        self._tools: dict[str, Tool] = {}
        self._callees: dict[str, Callee] = {}
        for place, tool in enumerate(tools):
            match tool:
                case NamespaceTool():
                    for inner in tool.tools:
                        self._add(inner, tool.name, f"tools[{place}]")
                    self.shown.append(tool)
                case HostedTool():
                    self.warnings.append(
                        f"tools[{place}]: {tool.type[:60]} is not on this server, and left out"
                    )
                case _:
                    self._add(tool, None, f"tools[{place}]")
                    self.shown.append(tool)

    def chosen(self, choice: WireChoice) -> tuple[tuple[Tool, ...], ToolChoice]:
        """The tools to show, and which of them may or must be called. Raises InvalidRequest for a choice of none."""
        everything = tuple(self._tools.values())
        match choice:
            case NamedChoice():
                return everything, ToolChoice("named", self._found(choice.name, choice.namespace).name)
            case AllowedTools():
                return tuple(self._allowed(choice)), ToolChoice(choice.mode)
            case HostedChoice():
                raise InvalidRequest(
                    f"tool_choice: {choice.type[:60]} is not on this server", param="tool_choice"
                )
            case mode:
                return everything, ToolChoice(mode)

    def callee(self, name: str) -> Callee:
        """Whom a call with this name is for; a name that is no tool's stands for itself."""
        return self._callees.get(name) or Callee(name)

    def _add(self, tool: FunctionTool | CustomTool, namespace: str | None, place: str) -> None:
        name = flat_name(namespace, tool.name)
        if name in self._tools:
            raise InvalidRequest(f"{place}: a tool named {name[:80]!r} is there already", param="tools")
        self._callees[name] = Callee(tool.name, namespace, isinstance(tool, CustomTool))
        if isinstance(tool, FunctionTool):
            self._tools[name] = Tool(
                name=name,
                description=tool.description,
                parameters=tool.parameters or {"type": "object", "properties": {}},
                strict=tool.strict,
            )
        else:
            self._tools[name] = self._function_of(tool, name, place)

    def _function_of(self, tool: CustomTool, name: str, place: str) -> Tool:
        text: dict[str, Any] = {"type": "string"}
        description = tool.description
        form = tool.format
        if form is not None and form.type == "grammar":
            if form.syntax is None or form.definition is None:
                raise InvalidRequest(f"{place}.format: a grammar needs syntax and definition", param="tools")
            if form.syntax == "regex":
                text["pattern"] = f"^(?:{form.definition})$"
            else:
                self.warnings.append(
                    f"{place}: the Lark grammar of {name[:60]} is shown to the model, and its input is not held to it"
                )
            description = "\n\n".join(
                [
                    *([description] if description else ()),
                    f"The input follows this {form.syntax} grammar:",
                    form.definition,
                ]
            )
        schema = {
            "type": "object",
            "properties": {FIELD: text},
            "required": [FIELD],
            "additionalProperties": False,
        }
        return Tool(name=name, description=description, parameters=schema)

    def _allowed(self, choice: AllowedTools) -> Iterator[Tool]:
        names = dict.fromkeys(
            self._found(str(entry.get("name")), _text(entry.get("namespace"))).name
            for entry in choice.tools
            if entry.get("type") in ("function", "custom")
        )
        if not names:
            raise InvalidRequest(
                "tool_choice.tools: none of these tools is on this server", param="tool_choice"
            )
        yield from (self._tools[name] for name in names)

    def _found(self, name: str, namespace: str | None) -> Tool:
        tool = self._tools.get(flat_name(namespace, name))
        if tool is None:
            raise InvalidRequest(f"tool_choice: no tool is named {name[:80]!r}", param="tool_choice")
        return tool


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
