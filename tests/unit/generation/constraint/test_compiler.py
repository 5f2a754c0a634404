from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from jan_serve.core.constraint import CompiledGrammar, Constraint, GbnfConstraint, JsonSchemaConstraint
from jan_serve.errors import UnsupportedSchema
from jan_serve.generation.constraint import compiler as compiler_module
from jan_serve.generation.constraint.compiler import ConstraintCompiler

pytestmark = pytest.mark.anyio


class Translator:
    """Counts its calls, and waits at a gate where it is closed."""

    def __init__(self) -> None:
        self.calls: list[Constraint] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.size = 10

    def __call__(self, constraint: Constraint, named: Mapping[str, str]) -> CompiledGrammar:
        self.calls.append(constraint)
        self.threads.add(threading.get_ident())
        assert self.gate.wait(5)
        if self.error is not None:
            raise self.error
        return CompiledGrammar(gbnf=f"{len(self.calls):>{self.size}}")


@pytest.fixture
def translator() -> Translator:
    return Translator()


@pytest.fixture
def compiler(translator: Translator) -> Generator[ConstraintCompiler]:
    with ThreadPoolExecutor(1) as executor:
        yield ConstraintCompiler(executor, translate=translator)


def schema(number: int) -> JsonSchemaConstraint:
    return JsonSchemaConstraint({"const": number})


async def test_equal_constraints_are_compiled_once_and_off_the_event_loop(
    compiler: ConstraintCompiler, translator: Translator
) -> None:
    first = await compiler.compile(schema(1))
    assert await compiler.compile(JsonSchemaConstraint({"const": 1})) is first
    assert len(translator.calls) == 1
    assert threading.get_ident() not in translator.threads


async def test_the_order_of_properties_makes_a_difference(
    compiler: ConstraintCompiler, translator: Translator
) -> None:
    await compiler.compile(JsonSchemaConstraint({"properties": {"a": {}, "b": {}}}))
    await compiler.compile(JsonSchemaConstraint({"properties": {"b": {}, "a": {}}}))
    assert len(translator.calls) == 2


async def test_kinds_with_equal_content_are_told_apart(
    compiler: ConstraintCompiler, translator: Translator
) -> None:
    await compiler.compile(JsonSchemaConstraint("x"))
    await compiler.compile(GbnfConstraint("x"))
    assert len(translator.calls) == 2


async def test_requests_at_once_share_the_work(compiler: ConstraintCompiler, translator: Translator) -> None:
    translator.gate.clear()
    both = [asyncio.ensure_future(compiler.compile(schema(1))) for _ in range(2)]
    await asyncio.sleep(0)
    translator.gate.set()
    first, second = await asyncio.gather(*both)
    assert first is second
    assert len(translator.calls) == 1


async def test_a_request_that_leaves_does_not_stop_the_others(
    compiler: ConstraintCompiler, translator: Translator
) -> None:
    translator.gate.clear()
    leaving, staying = (asyncio.ensure_future(compiler.compile(schema(1))) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    translator.gate.set()
    assert (await staying).gbnf.strip() == "1"
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_the_cache_is_bounded_in_entries(compiler: ConstraintCompiler, translator: Translator) -> None:
    for number in range(compiler_module.MAX_ENTRIES + 5):
        await compiler.compile(schema(number))
    assert len(compiler) == compiler_module.MAX_ENTRIES
    before = len(translator.calls)
    await compiler.compile(schema(compiler_module.MAX_ENTRIES))
    assert len(translator.calls) == before
    await compiler.compile(schema(0))
    assert len(translator.calls) == before + 1


async def test_the_cache_is_bounded_in_bytes(
    compiler: ConstraintCompiler, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module, "MAX_BYTES", 25)
    for number in range(5):
        await compiler.compile(schema(number))
    assert (len(compiler), compiler.cached_bytes) == (2, 20)
    translator.size = 26
    await compiler.compile(schema(9))
    assert (len(compiler), compiler.cached_bytes) == (2, 20)


async def test_a_refusal_reaches_the_caller_and_is_not_remembered(
    compiler: ConstraintCompiler, translator: Translator
) -> None:
    translator.error = UnsupportedSchema("/a", "not", "no")
    with pytest.raises(UnsupportedSchema):
        await compiler.compile(schema(1))
    translator.error = None
    await compiler.compile(schema(1))
    assert len(compiler) == 1
