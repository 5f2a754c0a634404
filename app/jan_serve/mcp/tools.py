"""Tools of MCP servers as functions of a chat request, checked one by one: a server may list anything. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from jan_serve.core.nesting import is_deeper

MAX_TOOLS: Final = 128
"""Tools of one server. Each costs its tokens in every prompt."""

_MAX_NAME: Final = 64
_MAX_DESCRIPTION: Final = 4_000
_MAX_SCHEMA_BYTES: Final = 64 << 10
_MAX_DEPTH: Final = 32
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


class McpTool(msgspec.Struct, frozen=True):
    """name: in requests, unique among all servers. tool: as its server calls it. parameters: a JSON Schema."""

    name: str
    server: str
    tool: str
    description: str
    parameters: dict[str, Any]

    def function(self) -> dict[str, Any]:
        """The entry of a chat request's `tools`."""
        called = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": called}


class LeftOut(msgspec.Struct, frozen=True):
    """A listed tool that is not offered to the model. reason: the end of a sentence that begins with its name."""

    tool: str
    reason: str


def checked_tools(server: str, listed: Iterable[Any]) -> tuple[tuple[McpTool, ...], tuple[LeftOut, ...]]:
    """The tools of a server's list that can be offered, and the others. Never raises."""
    tools: dict[str, McpTool] = {}
    left_out: list[LeftOut] = []
    for number, entry in enumerate(listed):
        fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
        tool = fields.get("name")
        if not isinstance(tool, str) or not tool:
            left_out.append(LeftOut(f"#{number}", "has no name"))
            continue
        name = _OTHER.sub("_", f"{server}__{tool}")
        reason = _name_refusal(name, tools) or schema_refusal(fields.get("inputSchema"))
        if reason is not None:
            left_out.append(LeftOut(tool[:_MAX_NAME], reason))
            continue
        described = fields.get("description")
        text = described[:_MAX_DESCRIPTION] if isinstance(described, str) else ""
        tools[name] = McpTool(name, server, tool, text, fields["inputSchema"])
    return tuple(tools.values()), tuple(left_out)


def _name_refusal(name: str, tools: dict[str, McpTool]) -> str | None:
    if len(name) > _MAX_NAME:
        return f"has a name of more than {_MAX_NAME} characters together with its server's"
    if name in tools:
        return "has the name of another tool"
    if len(tools) == MAX_TOOLS:
        return f"is beyond the {MAX_TOOLS} tools that a server may have"
    return None


def schema_refusal(schema: object) -> str | None:
    """Why the schema of arguments cannot be used, as the end of a sentence about its tool; None if it can."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return "has an inputSchema that is not an object"
    if is_deeper(schema, _MAX_DEPTH):
        return f"has an inputSchema deeper than {_MAX_DEPTH} levels"
    if len(msgspec.json.encode(schema)) > _MAX_SCHEMA_BYTES:
        return f"has an inputSchema of more than {_MAX_SCHEMA_BYTES} bytes"
    fields = cast(dict[str, Any], schema)
    if fields.get("type") != "object":
        return "has an inputSchema that does not describe an object"
    named = {"$schema": fields["$schema"]} if isinstance(fields.get("$schema"), str) else {}
    try:
        validator_for(named, default=Draft202012Validator).check_schema(fields)
    except SchemaError as error:
        place = "/".join(["inputSchema", *map(str, error.absolute_path)])
        return f"has no JSON Schema at {place[:200]}: {error.message[:200]}"
    return None
