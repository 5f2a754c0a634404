"""The schema of a call to any tool of a request."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from jan_serve.dialects.tgi.chat.tools import tool_constraint
from jan_serve.dialects.tgi.chat.wire import Tool


def tool_of(name: str, item: dict[str, Any], keyword: str) -> Tool:
    """A tool whose only argument is an `Item` of its own."""
    parameters = {
        "type": "object",
        "properties": {"item": {"$ref": f"#/{keyword}/Item"}, "mark": {"const": {"$ref": "#/$defs/Item"}}},
        "required": ["item"],
        keyword: {"Item": {"anyOf": [{"$ref": f"#/{keyword}/Other"}]}, "Other": item},
    }
    return Tool.model_validate({"type": "function", "function": {"name": name, "arguments": parameters}})


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
def test_tools_with_definitions_of_one_name_keep_their_own(keyword: str) -> None:
    tools = [tool_of("number", {"type": "integer"}, keyword), tool_of("word", {"type": "string"}, keyword)]
    schema = tool_constraint(tools).schema

    def is_valid(name: str, item: Any, **other: Any) -> bool:
        call = {"function": {"_name": name, "item": item, **other}}
        validator: Any = jsonschema.Draft202012Validator(schema)
        return bool(validator.is_valid(call))

    assert is_valid("number", 1) and is_valid("word", "a")
    assert not is_valid("number", "a") and not is_valid("word", 1)
    assert is_valid("word", "a", mark={"$ref": "#/$defs/Item"}), "a value, not a reference"
