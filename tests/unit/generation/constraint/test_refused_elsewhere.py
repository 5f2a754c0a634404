"""Schemas of tools for which other servers refuse the whole request are enforced here, in every format."""

from __future__ import annotations

import json

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.hermes import HERMES
from jan_serve.core.messages import Tool
from jan_serve.generation.constraint.tool_grammar import long_bounds
from tests.support.call_grammars import call_grammars, call_trees
from tests.support.catalogues import HARD, Hard
from tests.unit.constraint.recognizer import matches

EASY = Tool(name="easy", parameters={"type": "object", "properties": {"x": {"type": "string"}}})


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_every_schema_is_enforced_beside_the_others(form: ChatFormat) -> None:
    tools = [
        EASY,
        *(Tool(name=f"hard_{n}", parameters=hard.parameters) for n, hard in enumerate(HARD.values())),
    ]
    warnings = call_grammars(form, tools, parallel=True).warnings
    # Gemma 4's strings within arrays and objects are counted by the grammar, and nothing beside it.
    assert warnings == ((f"tool hard_2: {long_bounds(4_096)}",) if form.name == "gemma4" else ())


@pytest.mark.parametrize("hard", HARD.values(), ids=HARD)
def test_calls_follow_the_schema(hard: Hard) -> None:
    whole = call_trees(HERMES, [EASY, Tool(name="hard", parameters=hard.parameters)], parallel=True)[0]

    def call(arguments: object) -> str:
        return f"<tool_call>\n{json.dumps({'name': 'hard', 'arguments': arguments})}\n</tool_call>"

    assert matches(whole, call(hard.valid))
    assert not matches(whole, call(hard.invalid))
