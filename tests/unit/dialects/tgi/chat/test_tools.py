"""The schema of a call to any tool of a request."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.dialects.tgi.chat.parse import Tool, tool_constraint
from jan_serve.dialects.tgi.chat.routes import CallPieces


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


ARGUMENTS: dict[str, dict[str, object]] = {
    "none": {},
    "flat": {"a": 1, "b": "} }"},
    "nested": {"a": {"b": {"c": [{}]}}},
    "text": {"a": '"}', "_name": "x"},
}


def read(pieces: list[str], *, complete: bool = True) -> tuple[str | None, str]:
    subject = CallPieces()
    found = "".join([subject.feed(piece) for piece in pieces])
    return subject.name, found + subject.finish(complete=complete)


@pytest.mark.parametrize("case", ARGUMENTS)
@pytest.mark.parametrize("indent", [None, 1])
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_every_cut_gives_the_same(case: str, indent: int | None, cuts: list[int]) -> None:
    arguments = {key: value for key, value in ARGUMENTS[case].items() if key != "_name"}
    text = json.dumps({"function": {"_name": 'f"\\', **arguments}}, indent=indent)
    marks = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    name, found = read([text[start:end] for start, end in pairwise(marks)])
    assert name == 'f"\\'
    assert json.loads(found) == arguments


def test_nothing_is_known_before_the_name_is_whole() -> None:
    subject = CallPieces()
    assert subject.feed('{"function":{"_name":"get') == ""
    assert subject.name is None
    assert subject.feed('_x"') == ""
    assert subject.name is None
    assert subject.feed(",") == "{"
    assert subject.name == "get_x"


def test_a_call_that_was_cut_keeps_all_of_its_text() -> None:
    assert read(['{"function":{"_name":"f","a":{"b":{}'], complete=False) == ("f", '{"a":{"b":{}')
