from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.core.constraint import (
    CallGrammars,
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    Whitespace,
)
from jan_serve.core.messages import Tool
from jan_serve.errors import EngineCrashed, InvalidRequest, JanServeError, UnsupportedSchema
from jan_serve.generation.constraint import grammar_cache as cache_module
from jan_serve.generation.constraint.call_join import join_calls
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.helpers.kinds import Compiled, CompileRequest
from tests.support.clock import TurnedClock
from tests.support.helpers.compiling import translate_inline

pytestmark = pytest.mark.anyio


class Translator:
    """Counts its calls, and waits at a gate where it is closed."""

    def __init__(self) -> None:
        self.calls: list[Constraint] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.ended = 0
        self.error: JanServeError | None = None
        self.size = 10

    async def translate(self, request: CompileRequest) -> Compiled:
        if not isinstance(request, Constraint):
            return await translate_inline(request)
        self.calls.append(request)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        if self.error is not None:
            raise self.error
        return CompiledGrammar(f"{len(self.calls):>{self.size}}")


@pytest.fixture
def translator() -> Translator:
    return Translator()


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
def cache(translator: Translator, clock: TurnedClock) -> GrammarCache:
    return GrammarCache(translator.translate, clock=clock)


def schema(number: int) -> JsonSchemaConstraint:
    return JsonSchemaConstraint({"const": number})


async def _after_a_turn(*tasks: asyncio.Task[CompiledGrammar]) -> None:
    """All have asked."""
    await asyncio.wait(tasks, timeout=0)
    await asyncio.sleep(0)


async def test_the_order_of_properties_makes_a_difference(
    cache: GrammarCache, translator: Translator
) -> None:
    await cache.compile(JsonSchemaConstraint({"properties": {"a": {}, "b": {}}}))
    await cache.compile(JsonSchemaConstraint({"properties": {"b": {}, "a": {}}}))
    assert len(translator.calls) == 2


async def test_numbers_beyond_64_bits_arrive(cache: GrammarCache, translator: Translator) -> None:
    await cache.compile(schema(10**30))
    assert translator.calls == [
        JsonSchemaConstraint({"const": 10**30}, Whitespace.CONSISTENT, PropertyOrder.SCHEMA)
    ]


async def test_white_space_is_that_of_the_request_or_of_the_server(translator: Translator) -> None:
    cache = GrammarCache(translator.translate, whitespace=Whitespace.FLEXIBLE)
    asked = (None, Whitespace.COMPACT, None, Whitespace.FLEXIBLE)
    for whitespace in asked:
        await cache.compile(JsonObjectConstraint(whitespace))
        await cache.compile(JsonSchemaConstraint(True, whitespace))
    settled = (Whitespace.FLEXIBLE, Whitespace.COMPACT)
    assert translator.calls == [
        constraint
        for whitespace in settled
        for constraint in (
            JsonObjectConstraint(whitespace),
            JsonSchemaConstraint(True, whitespace, PropertyOrder.SCHEMA),
        )
    ]


@pytest.mark.parametrize("order", [None, *PropertyOrder])
async def test_the_order_is_that_of_the_request_or_of_the_server(
    translator: Translator, order: PropertyOrder | None
) -> None:
    cache = GrammarCache(translator.translate, order=order)
    for asked in (None, *PropertyOrder):
        await cache.compile(JsonSchemaConstraint(True, property_order=asked))
    settled = dict.fromkeys((order or PropertyOrder.SCHEMA, *PropertyOrder))
    consistent = Whitespace.CONSISTENT
    assert translator.calls == [JsonSchemaConstraint(True, consistent, each) for each in settled]


async def test_arguments_of_tools_have_any_order_of_listed_names_unless_the_server_says_another(
    translator: Translator,
) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    texts: list[str] = []
    for order in (None, *PropertyOrder):
        cache = GrammarCache(translator.translate, order=order)
        calls = await cache.compile_calls(
            HERMES, [Tool(name="now", parameters=parameters)], parallel=False, constraint=None
        )
        texts.append(calls.whole.lark)
    unset, any_order, listed, of_schema = texts
    assert unset == listed
    assert len({any_order, listed, of_schema}) == 3


async def test_arguments_of_tools_have_the_white_space_of_the_server(translator: Translator) -> None:
    texts: list[str] = []
    for whitespace in Whitespace:
        cache = GrammarCache(translator.translate, whitespace=whitespace)
        calls = await cache.compile_calls(
            HERMES, [Tool(name="now", parameters={"type": "object"})], parallel=False, constraint=None
        )
        texts.append(calls.whole.lark)
    assert len(set(texts)) == 3


async def test_schemas_of_the_server_go_with_those_that_name_them() -> None:
    documents = {"colour.json": {"enum": ["red"]}}
    cache = GrammarCache(translate_inline, schemas=lambda: dict(documents))
    asked = {"$ref": "colour.json"}
    grammar = await cache.compile(JsonSchemaConstraint(asked))
    documents["colour.json"] = {"enum": ["blue"]}
    edited = await cache.compile(JsonSchemaConstraint(asked))
    assert ("red" in grammar.lark, "blue" in edited.lark) == (True, True)
    assert (await cache.explain(JsonSchemaConstraint(asked))).compiles
    tool = Tool(name="paint", parameters={"type": "object", "properties": {"colour": asked}}, strict=True)
    calls = await cache.compile_calls(HERMES, [tool], parallel=False, constraint=None)
    assert "blue" in calls.whole.lark
    with pytest.raises(UnsupportedSchema):
        await cache.compile(JsonSchemaConstraint({"$ref": "other.json"}))


async def test_a_known_request_is_not_bundled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = {"colour.json": {"enum": ["red"]}}

    def read() -> dict[str, Any]:
        return documents

    cache = GrammarCache(translate_inline, schemas=read)
    tool = Tool(
        name="paint", parameters={"type": "object", "properties": {"colour": {"$ref": "colour.json"}}}
    )
    constraint = JsonSchemaConstraint({"$ref": "colour.json"})

    async def asked() -> CallGrammars:
        await cache.compile(constraint)
        return await cache.compile_calls(HERMES, [tool], parallel=False, constraint=constraint)

    calls = await asked()
    in_thread: list[Callable[..., object]] = []

    async def to_thread(function: Callable[..., object], *args: object) -> object:
        in_thread.append(function)
        return function(*args)

    monkeypatch.setattr(cache_module.asyncio, "to_thread", to_thread)
    assert await asked() == calls
    assert in_thread == [read, read, join_calls]
    assert "red" in calls.whole.lark


async def test_schemas_of_the_server_are_read_beside_the_loop_by_one_thread_at_a_time() -> None:
    loop_thread = threading.get_ident()
    at_once = 0

    def read() -> dict[str, Any]:
        nonlocal at_once
        at_once += 1
        assert at_once == 1 and threading.get_ident() != loop_thread
        at_once -= 1
        return {}

    cache = GrammarCache(translate_inline, schemas=read)
    await asyncio.gather(*(cache.compile(schema(number)) for number in range(20)))
    await cache.explain(schema(1))
    await cache.compile_calls(HERMES, [Tool(name="now")], parallel=True, constraint=None)


async def test_a_named_grammar_is_asked_for_by_its_text(translator: Translator) -> None:
    cache = GrammarCache(translator.translate, {"list": 'root ::= "a"'})
    await cache.compile(GbnfConstraint("list"))
    assert translator.calls == [GbnfConstraint('root ::= "a"')]
    named, written = [
        await cache.compile_calls(HERMES, [Tool(name="now")], parallel=False, constraint=GbnfConstraint(text))
        for text in ("list", 'root ::= "a"')
    ]
    assert named == written


async def test_requests_at_once_share_the_work(cache: GrammarCache, translator: Translator) -> None:
    translator.gate.clear()
    both = [asyncio.create_task(cache.compile(schema(1))) for _ in range(2)]
    await _after_a_turn(*both)
    translator.gate.set()
    first, second = await asyncio.gather(*both)
    assert first is second
    assert len(translator.calls) == 1


async def test_a_request_that_leaves_does_not_stop_the_others(
    cache: GrammarCache, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "GRACE_S", 0.0)
    translator.gate.clear()
    leaving, staying = (asyncio.create_task(cache.compile(schema(1))) for _ in range(2))
    await _after_a_turn(leaving, staying)
    leaving.cancel()
    await asyncio.wait([leaving])
    translator.gate.set()
    assert (await staying).lark.strip() == "1"
    assert leaving.cancelled()
    assert translator.ended == 0


async def test_work_that_nobody_waits_for_is_ended(
    cache: GrammarCache, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "GRACE_S", 0.0)
    translator.gate.clear()
    leaving = [asyncio.create_task(cache.compile(schema(1))) for _ in range(2)]
    await _after_a_turn(*leaving)
    for task in leaving:
        task.cancel()
    async with asyncio.timeout(60):
        while not translator.ended:
            await asyncio.sleep(0)
    translator.gate.set()
    assert (await cache.compile(schema(1))).lark.strip() == "2"
    assert translator.ended == 1


async def test_work_that_is_done_soon_after_its_client_left_is_kept(
    cache: GrammarCache, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "GRACE_S", 60.0)
    translator.gate.clear()
    leaving = asyncio.create_task(cache.compile(schema(1)))
    await _after_a_turn(leaving)
    leaving.cancel()
    await asyncio.wait([leaving])
    translator.gate.set()
    assert (await cache.compile(schema(1))).lark.strip() == "1"


async def test_the_cache_is_bounded_in_entries(cache: GrammarCache, translator: Translator) -> None:
    for number in range(cache_module.MAX_ENTRIES + 5):
        await cache.compile(schema(number))
    assert len(cache) == cache_module.MAX_ENTRIES
    before = len(translator.calls)
    await cache.compile(schema(cache_module.MAX_ENTRIES))
    assert len(translator.calls) == before
    await cache.compile(schema(0))
    assert len(translator.calls) == before + 1


async def test_the_cache_is_bounded_in_bytes(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_BYTES", 25)
    cache = GrammarCache(translator.translate)
    for number in range(5):
        await cache.compile(schema(number))
    assert len(cache) == 2
    translator.size = 26
    await cache.compile(schema(9))
    assert len(cache) == 2, "it alone is over the bound"
    translator.size = 4
    await cache.compile(schema(10))
    assert len(cache) == 3, "2 x 10 bytes and 4 are under it"


async def test_a_refusal_is_remembered_for_a_while_and_raised_anew(
    cache: GrammarCache, translator: Translator, clock: TurnedClock
) -> None:
    translator.error = UnsupportedSchema("/a", "not", "no")
    raised: list[UnsupportedSchema] = []
    for _ in range(2):
        with pytest.raises(UnsupportedSchema) as caught:
            await cache.compile(schema(1))
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert raised[0].pointer == raised[1].pointer == "/a"
    assert len(translator.calls) == 1
    translator.error = None
    clock.turn(cache_module.REFUSED_FOR_S)
    await cache.compile(schema(1))
    assert (len(cache), len(translator.calls)) == (1, 2)


async def test_refusals_are_bounded_and_take_no_place_from_results(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_REFUSALS", 3)
    cache = GrammarCache(translator.translate)
    kept = await cache.compile(schema(0))
    translator.error = UnsupportedSchema("/a", "not", "no")
    for number in (1, 2, 3, 4):
        with pytest.raises(UnsupportedSchema):
            await cache.compile(schema(number))
    before = len(translator.calls)
    for number, asked in ((4, 0), (1, 1)):
        with pytest.raises(UnsupportedSchema):
            await cache.compile(schema(number))
        assert len(translator.calls) == before + asked
    assert await cache.compile(schema(0)) is kept


async def test_a_fault_of_ours_is_not_remembered(cache: GrammarCache, translator: Translator) -> None:
    translator.error = EngineCrashed("gone")
    with pytest.raises(EngineCrashed):
        await cache.compile(schema(1))
    translator.error = None
    await cache.compile(schema(1))
    assert len(translator.calls) == 2


TOO_COMPLEX = {"type": "number", "multipleOf": 987654321.123}


@pytest.mark.parametrize(
    ("constraint", "param", "place"),
    [
        (JsonSchemaConstraint({"properties": {"a": TOO_COMPLEX}}), "response_format", "/properties/a"),
        (
            JsonSchemaConstraint({"properties": {"a": {"pattern": "(?<=x)a"}}}),
            "response_format",
            "/properties/a",
        ),
        (JsonSchemaConstraint({"properties": {"a": {"type": "x"}}}), "response_format", "/properties/a/type"),
        (GbnfConstraint("root ::= other"), "grammar", "line 1"),
    ],
)
async def test_a_refusal_names_the_field_and_the_place(
    constraint: Constraint, param: str, place: str
) -> None:
    grammars = GrammarCache(translate_inline)
    for _ in range(2):  # as it is found, and as it is kept
        with pytest.raises(InvalidRequest) as caught:
            await grammars.compile(constraint)
        assert caught.value.param == param
        assert place in caught.value.message


async def test_the_refusal_of_a_strict_tool_names_the_tool_and_the_place() -> None:
    schema = {"type": "object", "properties": {"a": TOO_COMPLEX}}
    tools = (Tool(name="fine"), Tool(name="wrong", parameters=schema, strict=True))
    with pytest.raises(InvalidRequest, match=r"tool wrong: .* at /properties/a: ") as caught:
        await GrammarCache(translate_inline).compile_calls(HERMES, tools, parallel=True, constraint=None)
    assert caught.value.param == "tools"
