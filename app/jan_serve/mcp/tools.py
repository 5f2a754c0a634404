"""Tools of MCP servers as functions of a chat request, and their results, both within limits. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from jan_serve.core.nesting import is_deeper
from jan_serve.errors import InvalidImage
from jan_serve.image_files import checked_header

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


MAX_TEXT: Final = 100_000
"""Characters of a result. A model with a context of 32k tokens reads about as many."""

MAX_PICTURES: Final = 8


class ToolResult(msgspec.Struct, frozen=True):
    """pictures: data URLs. failed: the tool, its server or the call to it failed, and the text says why."""

    text: str
    pictures: tuple[str, ...] = ()
    failed: bool = False

    def content(self) -> str | list[dict[str, Any]]:
        """The content of the message of role `tool`."""
        if not self.pictures:
            return self.text
        text = [{"type": "text", "text": self.text}] if self.text else []
        return [*text, *({"type": "image_url", "image_url": {"url": url}} for url in self.pictures)]


def read_result(raw: Any) -> ToolResult:
    """The result of `tools/call`. Never raises: what cannot be shown is named in the text."""
    result = cast(dict[str, Any], raw) if isinstance(raw, dict) else {}
    blocks = result.get("content")
    texts: list[str] = []
    pictures: list[str] = []
    for block in cast(list[Any], blocks) if isinstance(blocks, list) else ():
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"type": "resource_link", "uri": str(uri)}:
                texts.append(f"[a link: {uri[:1000]}]")
            case {"type": "image", "data": str(data)}:
                texts += _add_picture(data, pictures)
            case {"type": str(kind)}:
                texts.append(f"[content of type {kind[:40]}, which cannot be shown here]")
            case _:
                texts.append("[content without a type]")
    if not texts and not pictures and result.get("structuredContent") is not None:
        texts.append(json.dumps(result["structuredContent"], ensure_ascii=False))
    if not texts and not pictures:
        texts.append("[no content]")
    text = "\n".join(texts)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut: the first {MAX_TEXT} of {len(text)} characters]"
    return ToolResult(text, tuple(pictures), result.get("isError") is True)


def _add_picture(data: str, pictures: list[str]) -> list[str]:
    """Add the picture, or return what is said in its place."""
    if len(pictures) == MAX_PICTURES:
        return [f"[a picture beyond the {MAX_PICTURES} that a result may have]"]
    try:
        file = base64.b64decode(data, validate=True)
        header = checked_header(file)
    except (InvalidImage, binascii.Error, ValueError) as error:
        return [f"[a picture that cannot be shown: {error}]"]
    # The type that the bytes have, whatever the server says.
    pictures.append(f"data:image/{header.format.lower()};base64,{base64.b64encode(file).decode()}")
    return []
