"""The 24 tools of a coding agent (64 kB) become grammars. All formats: tests/conformance/test_agent_tools.py."""

from __future__ import annotations

import pytest

from benchmarks.agent_session import agent_tools
from jan_serve.chat.detect import FORMATS
from jan_serve.core.messages import Tool
from jan_serve.generation.constraint.tool_grammar import BOUNDS, long_bounds
from tests.support.call_grammars import call_grammars

LONG = f"tool Workflow: {long_bounds(BOUNDS[0])}"


def tools() -> tuple[Tool, ...]:
    return tuple(
        Tool(name=tool["name"], description=tool["description"], parameters=tool["input_schema"])
        for tool in agent_tools()
    )


@pytest.mark.parametrize(
    ("form", "warnings"), [("hermes", ()), ("qwen3-coder", (LONG,)), ("deepseek-v3.2", (LONG,))]
)
def test_they_are_enforced(form: str, warnings: tuple[str, ...]) -> None:
    found = next(each for each in FORMATS if each.name == form)
    assert call_grammars(found, tools(), parallel=True).warnings == warnings
