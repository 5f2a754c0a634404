"""Catalogues of tools: what is compiled, what is loosened, and that the joined grammar is that of the trees."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.core.constraint import (
    CallGrammars,
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    RegexConstraint,
)
from jan_serve.core.messages import Tool
from jan_serve.generation.constraint import compile_tools
from jan_serve.generation.constraint.call_join import ITEMS_REPEAT
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.helpers.kinds import Compiled, CompileRequest, CompileTool
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.integration.generation.constraint.test_call_grammar import TOOLS
from tests.support.calls.call_grammars import call_grammars, call_trees
from tests.support.helpers.compiling import translate_inline
from tests.unit.constraint.sampling import Sampler

pytestmark = pytest.mark.anyio

SAMPLES = 10


def tool(number: int, n_properties: int = 3, *, strict: bool | None = None) -> Tool:
    kinds = ("string", "integer", "boolean", "number")
    properties: dict[str, Any] = {
        f"field_{number}_{index}": {"type": kinds[index % 4], "description": "What is wanted, in some words."}
        for index in range(n_properties)
    }
    return Tool(name=f"tool_{number}", parameters={"type": "object", "properties": properties}, strict=strict)


class Counting:
    """Counts requests by kind."""

    def __init__(self) -> None:
        self.counts: Counter[type[CompileRequest]] = Counter()

    async def translate(self, request: CompileRequest) -> Compiled:
        self.counts[type(request)] += 1
        return await translate_inline(request)


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    oracle = LlguidanceOracle()
    specials = "".join(f"{special.rule}: {special.spelled}\n" for special in grammar.specials)
    return oracle.accepts(oracle.compile(grammar.lark + specials), text)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_joined_grammars_take_the_texts_of_their_trees(form: ChatFormat) -> None:
    grammars = call_grammars(form, TOOLS, parallel=True)
    trees = call_trees(form, TOOLS, parallel=True)
    for grammar, tree in zip((grammars.whole, *grammars.triggered), trees, strict=True):
        sampler, random = Sampler(tree), Random(4)
        texts = [sampler.text(random) for _ in range(SAMPLES)]
        oracle = LlguidanceOracle()
        specials = "".join(f"{special.rule}: {special.spelled}\n" for special in grammar.specials)
        matcher = oracle.compile(grammar.lark + specials)
        assert [text for text in texts if not oracle.accepts(matcher, text)] == []
        assert not oracle.accepts(matcher, texts[0][:-1] + "\0")


async def test_a_changed_tool_is_the_only_one_that_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_tools, "TOOLS_S", 600.0)
    translator = Counting()
    cache = GrammarCache(translator.translate)
    tools = [tool(number) for number in range(20)]

    async def compile_all() -> int:
        translator.counts.clear()
        await cache.compile_calls(HERMES, tools, parallel=True, constraint=None)
        return translator.counts[CompileTool]

    assert await compile_all() == 21, "and what a tool without a schema is held to"
    assert await compile_all() == 0
    tools[7] = tool(7, 4)
    assert await compile_all() == 1
    tools[8] = msgspec.structs.replace(tools[8], description="other words")
    assert await compile_all() == 0
    tools.reverse()
    assert await compile_all() == 0


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
async def test_a_tool_that_is_not_strict_is_called_with_any_object(form: ChatFormat) -> None:
    """If its `strict` is false: without one, its schema is enforced."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    cache = GrammarCache(translate_inline)

    async def compiled(parameters: dict[str, Any], strict: bool | None) -> CallGrammars:
        tools = [Tool(name="f", parameters=parameters, strict=strict), tool(1)]
        return await cache.compile_calls(form, tools, parallel=True, constraint=None)

    anything = await compiled({"type": "object"}, None)
    free = await compiled(schema, False)
    assert free.whole == anything.whole
    assert free.triggered == anything.triggered
    assert free.warnings == anything.warnings == ()
    for strict in (None, True):
        held = await compiled(schema, strict)
        assert held.whole != anything.whole
        assert held.warnings == ()


async def test_tools_that_are_not_ready_in_time_are_ready_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_tools, "TOOLS_S", 0.0)
    cache = GrammarCache(translate_inline)
    tools = [tool(number) for number in range(12)]
    first = await cache.compile_calls(HERMES, tools, parallel=True, constraint=None)
    assert "waits for the next request" in first.warnings[0]
    monkeypatch.setattr(compile_tools, "TOOLS_S", 600.0)
    second = await cache.compile_calls(HERMES, tools, parallel=True, constraint=None)
    assert second == call_grammars(HERMES, tools, parallel=True)


@pytest.mark.parametrize("constraint", [RegexConstraint(".*"), GbnfConstraint('root ::= "a"')])
async def test_beside_an_answer_that_is_no_json_arguments_have_no_memory(constraint: Constraint) -> None:
    """It may begin like a call."""
    words = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    tools = [Tool(name="tag", parameters={"type": "object", "properties": {"words": words}}), tool(1)]
    cache = GrammarCache(translate_inline)
    for other, memory, warnings in [
        (None, True, ()),
        (JsonObjectConstraint(), True, ()),
        (constraint, False, (f"tool tag: {ITEMS_REPEAT}",)),
    ]:
        calls = await cache.compile_calls(HERMES, tools, parallel=True, constraint=other)
        assert (calls.whole.uniqueness is not None) is memory
        assert calls.warnings == warnings
