"""Tools with which other servers refuse a whole request: single schemas, and catalogues that are too large.

Reduced from public reports: of ggml-org/llama.cpp 25746, 25895, 25923 and 26596, firecrawl/firecrawl 4512,
codefuturist/email-mcp 58, NousResearch/hermes-agent 67349, lmstudio-ai/lmstudio-bug-tracker 738 and 2193.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from jan_serve.core.messages import Tool


class Hard(NamedTuple):
    """A schema of arguments with one object that satisfies it, and one that does not."""

    parameters: dict[str, Any]
    valid: dict[str, Any]
    invalid: dict[str, Any]


def _with(schema: dict[str, Any], valid: Any, invalid: Any) -> Hard:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return Hard(parameters, {"x": valid}, {"x": invalid})


def _nested(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    for _ in range(depth):
        schema = {"type": "object", "properties": {"o": schema}, "required": ["o"]}
    return schema


def _within(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {"o": value}
    return value


HARD: Final[dict[str, Hard]] = {
    "zod's email, with lookaheads": _with(
        {
            "type": "string",
            "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]"
            r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        },
        "a.b@example.com",
        "a..b@example.com",
    ),
    "a bound of 65536": _with({"type": "string", "minLength": 1, "maxLength": 65_536}, "ls -l", "x" * 65_537),
    "a bound of 10000 within arrays and objects": _with(
        {
            "type": "array",
            "maxItems": 100,
            "items": _nested({"type": "string", "maxLength": 10_000}, 3),
        },
        [_within("Why?", 3)] * 2,
        [_within(5, 3)],
    ),
    "a bound of 2000 in the items of an array": _with(
        {"type": "array", "items": {"type": "string", "maxLength": 2_000}}, ["a", "b"], ["x" * 2_001]
    ),
    "no properties": Hard({"type": "object", "properties": {}, "additionalProperties": False}, {}, {"x": 1}),
    "a pattern without anchors": _with({"type": "string", "pattern": "\\S"}, " a ", "   "),
    "a pattern within an object": _with(
        _nested({"type": "string", "pattern": "^[a-z]+$"}, 2), _within("abc", 2), _within("ABC", 2)
    ),
    "classes in bounded repeats": _with(
        {"type": "string", "pattern": r"^\d{4,4}-\d{2,2}-\d{2,2}(T\d{2,2}:\d{2,2})?$"},
        "2026-07-23T15:55",
        "2026-7-23",
    ),
    "a reference to a definition": Hard(
        {
            "type": "object",
            "properties": {"definition": {"$ref": "#/$defs/Definition"}},
            "required": ["definition"],
            "$defs": {
                "Definition": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "parts": {"type": "array", "items": {"$ref": "#/$defs/Definition"}},
                    },
                    "required": ["name"],
                }
            },
        },
        {"definition": {"name": "a", "parts": [{"name": "b"}]}},
        {"definition": {"name": "a", "parts": [{"parts": []}]}},
    ),
    "objects within eight objects": _with(_nested({"enum": ["a", "b"]}, 8), _within("b", 8), _within("c", 8)),
    "null in place of a type": _with(
        {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "default": None},
        None,
        ["a"],
    ),
}


def plain_tools(count: int) -> list[Tool]:
    """Tools of 1.7 KiB of schema each: eight scalars, a nested object and an array. No two are alike."""
    return [Tool(name=f"tool_{number}", parameters=_plain(number)) for number in range(count)]


def _plain(number: int) -> dict[str, Any]:
    kinds = ("string", "integer", "boolean", "number")
    scalars: dict[str, Any] = {
        f"field_{number}_{index}": {
            "type": kinds[index % 4],
            "description": f"What field {index} of tool {number} is for, said in a sentence or two, as servers of "
            "tools do it for models.",
        }
        for index in range(8)
    }
    inner = {
        "type": "object",
        "description": "Where to look, and how much of what is there to give back to whoever asked for it.",
        "properties": {
            f"path_{number}": {"type": "string", "maxLength": 200},
            f"depth_{number}": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": [f"path_{number}"],
    }
    items = {
        "type": "array",
        "items": {"enum": [f"kind_{number}_{index}" for index in range(6)]},
        "maxItems": 5,
    }
    return {
        "type": "object",
        "properties": {**scalars, f"scope_{number}": inner, f"kinds_{number}": items},
        "required": [f"field_{number}_0", f"field_{number}_1"],
    }
