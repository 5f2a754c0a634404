"""Wire types of tools and the tool choice."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag

from jan_serve.dialects.anthropic.messages.wire_blocks import tag_of
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel


class ClientTool(WireModel):
    """A tool of the client. input_schema: a JSON Schema."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class AnthropicTool(WireModel):
    """A tool that Anthropic runs or defines, such as `web_search_20250305`: left out."""

    type: str
    name: str | None = None


_CUSTOM: Final = "custom"
_KNOWN: Final = frozenset({_CUSTOM})


def _tag(value: object) -> str:
    """A tool without a type is the client's."""
    return tag_of(value, _KNOWN) or _CUSTOM


Tool = Annotated[
    Annotated[ClientTool, Tag(_CUSTOM)] | Annotated[AnthropicTool, Tag("other")], Discriminator(_tag)
]
Tools = Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")]


class ToolMode(WireModel):
    """auto: the model decides. any: it calls one of the tools. none: it calls none."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class ToolByName(WireModel):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


ToolChoice = Annotated[ToolMode | ToolByName, Discriminator("type")]
