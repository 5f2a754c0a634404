"""Wire types of tools and the tool choice."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel, type_of


class FunctionTool(WireModel):
    """A function that the model may call; parameters is a JSON Schema."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomFormat(WireModel):
    """The format of a custom tool's input."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(WireModel):
    type: Literal["custom"]
    name: str
    description: str | None = None
    format: CustomFormat | None = None


class NamespaceTool(WireModel):
    """Tools under a common name; Codex sends the tools of an MCP server this way."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: Annotated[
        list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]],
        FirstError(),
        AtMost(limits.MAX_TOOLS, "tools.tools"),
    ]


class HostedTool(WireModel):
    """A tool that OpenAI hosts and this server lacks: left out."""

    type: str


def _tool_tag(value: object) -> str | None:
    kind = type_of(value)
    return kind if kind is None or kind in ("function", "custom", "namespace") else "hosted"


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[NamespaceTool, Tag("namespace")]
    | Annotated[HostedTool, Tag("hosted")],
    Discriminator(_tool_tag, custom_error_type="no_type", custom_error_message="a tool needs a type, a text"),
]
Tools = Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")]


class NamedChoice(WireModel):
    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class AllowedTools(WireModel):
    """The tools of `tools` that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], AtMost(limits.MAX_TOOLS, "tool_choice.tools")]


class HostedChoice(WireModel):
    """A hosted tool that this server lacks: rejected."""

    type: str


def _choice_tag(value: object) -> str | None:
    if isinstance(value, str):
        return "mode"
    kind = type_of(value)
    if kind in ("function", "custom"):
        return "named"
    return kind if kind is None or kind == "allowed_tools" else "hosted"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[NamedChoice, Tag("named")]
    | Annotated[AllowedTools, Tag("allowed_tools")]
    | Annotated[HostedChoice, Tag("hosted")],
    Discriminator(
        _choice_tag,
        custom_error_type="no_choice",
        custom_error_message="must be none, auto, required, or an object with a type",
    ),
]
