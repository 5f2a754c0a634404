"""Maps the tools of a request to functions that models can call, and calls back to those tools. Pure.

A custom tool becomes a function of one text, `{"input": "…"}`, the only form that the formats of models have. A tool of
a namespace is called `namespace__name`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jan_serve.core.messages import NO_ARGUMENTS, Tool, ToolChoice
from jan_serve.dialects.openai.responses import wire
from jan_serve.dialects.openai.responses.custom_input import INPUT
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.errors import InvalidRequest

_SEPARATOR: Final = "__"


def flat_name(namespace: str | None, name: str) -> str:
    """The function name that models see."""
    if not namespace:
        return name
    return namespace + ("" if namespace.endswith(_SEPARATOR) else _SEPARATOR) + name


class Callee(msgspec.Struct, frozen=True):
    """The client's name of a tool."""

    name: str
    namespace: str | None = None
    custom: bool = False


class ToolBook:
    """shown: the request's tools without the hosted ones. warnings: tools that are left out or not fully honoured."""

    def __init__(self, tools: list[wire.Tool]) -> None:
        """Raises InvalidRequest for two tools with the same flat name."""
        self.warnings: list[str] = []
        self.shown: list[wire.Tool] = []
        self._tools: dict[str, Tool] = {}
        self._callees: dict[str, Callee] = {}
        for index, tool in enumerate(tools):
            match tool:
                case wire.NamespaceTool():
                    for inner in tool.tools:
                        self._add(inner, tool.name, f"tools[{index}]")
                    self.shown.append(tool)
                case wire.HostedTool():
                    self.warnings.append(
                        f"tools[{index}]: {tool.type[:60]} is not on this server, and left out"
                    )
                case _:
                    self._add(tool, None, f"tools[{index}]")
                    self.shown.append(tool)

    def chosen(self, choice: wire.ToolChoice) -> tuple[tuple[Tool, ...], ToolChoice]:
        """The tools to show and the choice among them. Raises InvalidRequest if the choice names no tool."""
        everything = tuple(self._tools.values())
        match choice:
            case wire.NamedChoice():
                return everything, ToolChoice("named", self._find(choice.name, choice.namespace).name)
            case wire.AllowedTools():
                return everything, ToolChoice(choice.mode, among=frozenset(self._allowed(choice)))
            case wire.HostedChoice():
                raise wrong("tool_choice", f"{choice.type[:60]} is not on this server")
            case mode:
                return everything, ToolChoice(mode)

    def callee(self, name: str) -> Callee:
        """The tool with this flat name; an unknown name is returned unchanged."""
        return self._callees.get(name) or Callee(name)

    def _add(self, tool: wire.FunctionTool | wire.CustomTool, namespace: str | None, field: str) -> None:
        name = flat_name(namespace, tool.name)
        if name in self._tools:
            raise InvalidRequest(f"{field}: a tool named {name[:80]!r} is there already", param="tools")
        self._callees[name] = Callee(tool.name, namespace, isinstance(tool, wire.CustomTool))
        if isinstance(tool, wire.FunctionTool):
            self._tools[name] = Tool(
                name=name,
                description=tool.description,
                parameters=tool.parameters or NO_ARGUMENTS,
                # OpenAI's strict mode takes few schemas, so agents send false with all others.
                strict=tool.strict or None,
            )
        else:
            self._tools[name] = self._function_of(tool, name, field)

    def _function_of(self, tool: wire.CustomTool, name: str, field: str) -> Tool:
        text: dict[str, Any] = {"type": "string"}
        description = tool.description
        form = tool.format
        if form is not None and form.type == "grammar":
            if form.syntax is None or form.definition is None:
                raise InvalidRequest(f"{field}.format: a grammar needs syntax and definition", param="tools")
            if form.syntax == "regex":
                text["pattern"] = f"^(?:{form.definition})$"
            else:
                self.warnings.append(
                    f"{field}: the Lark grammar of {name[:60]} is shown to the model, and its input is not held to it"
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
            "properties": {INPUT: text},
            "required": [INPUT],
            "additionalProperties": False,
        }
        return Tool(name=name, description=description, parameters=schema)

    def _allowed(self, choice: wire.AllowedTools) -> list[str]:
        names = [
            self._find(str(entry.get("name")), entry.get("namespace")).name
            for entry in choice.tools
            if entry.get("type") in ("function", "custom")
        ]
        if not names:
            raise InvalidRequest(
                "tool_choice.tools: none of these tools is on this server", param="tool_choice"
            )
        return names

    def _find(self, name: str, namespace: object) -> Tool:
        tool = self._tools.get(flat_name(namespace if isinstance(namespace, str) else None, name))
        if tool is None:
            raise wrong("tool_choice", f"no tool is named {name[:80]!r}")
        return tool
