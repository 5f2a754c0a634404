"""The 24 tools of a coding agent (64 kB) become grammars. All formats: tests/conformance/test_agent_tools.py."""

from __future__ import annotations

import pytest

from benchmarks.agent_session import agent_tools
from jan_serve.chat.detect import FORMATS
from jan_serve.core.messages import Tool
from tests.support.call_grammars import call_grammars


def tools() -> tuple[Tool, ...]:
    return tuple(
        Tool(name=tool["name"], description=tool["description"], parameters=tool["input_schema"])
        for tool in agent_tools()
    )


@pytest.mark.parametrize("form", ["hermes", "qwen3-coder", "deepseek-v3.2"])
def test_they_are_enforced(form: str) -> None:
    found = next(each for each in FORMATS if each.name == form)
    grammars = call_grammars(found, tools(), parallel=True)
    assert grammars.warnings == ()
    for grammar in (grammars.whole, *grammars.triggered):
        most = None if grammar.bounds is None else grammar.bounds.most
        assert most == (None if form == "hermes" else {"Workflow": {"script": 524_288}})
