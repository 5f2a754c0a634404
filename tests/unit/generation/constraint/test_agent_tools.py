"""The 24 tools of a coding agent (64 kB) become grammars. All formats: tests/conformance/test_agent_tools.py."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.agent_session import agent_tools
from jan_serve.chat.detect import FORMATS
from jan_serve.core.messages import Tool
from jan_serve.errors import GrammarTooComplex
from jan_serve.generation.constraint.tool_grammar import MAX_BOUND, without_large_bounds
from tests.support.call_grammars import call_grammars

LONG = f"tool Workflow: lengths above {MAX_BOUND} are not enforced in the notation of this model"


def tools() -> tuple[Tool, ...]:
    return tuple(
        Tool(name=tool["name"], description=tool["description"], parameters=tool["input_schema"])
        for tool in agent_tools()
    )


@pytest.mark.parametrize(("form", "warnings"), [("hermes", ()), ("qwen3-coder", (LONG,))])
def test_they_are_enforced(form: str, warnings: tuple[str, ...]) -> None:
    found = next(each for each in FORMATS if each.name == form)
    assert call_grammars(found, tools(), parallel=True).warnings == warnings


def test_only_large_bounds_go() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 524_288, "minLength": 1},
            "b": {"type": "string", "maxLength": MAX_BOUND},
            "maxLength": {"anyOf": [{"type": "string", "maxLength": 9999.0}, {"const": {"maxLength": 9999}}]},
        },
    }
    assert without_large_bounds(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 1},
            "b": {"type": "string", "maxLength": MAX_BOUND},
            "maxLength": {"anyOf": [{"type": "string"}, {"const": {"maxLength": 9999}}]},
        },
    }


def test_a_strict_tool_is_refused_rather_than_held_to_less() -> None:
    form = next(each for each in FORMATS if each.name == "qwen3-coder")
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 524_288}}}
    with pytest.raises(GrammarTooComplex):
        call_grammars(form, [Tool(name="t", parameters=schema, strict=True)], parallel=True)
