"""The processes that compile: what comes back, and that no constraint and no end of a process costs more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import (
    CompiledGrammar,
    GbnfConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    Whitespace,
)
from jan_serve.core.messages import Tool
from jan_serve.errors import (
    EngineCrashed,
    GrammarTooComplex,
    InsufficientMemory,
    InvalidGrammar,
    UnsupportedPattern,
    UnsupportedSchema,
)
from jan_serve.generation.constraint.call_frame import call_frame
from jan_serve.generation.constraint.tool_grammar import tool_grammar
from jan_serve.helpers.kinds import (
    COMPILING,
    CompileAnswer,
    Compiled,
    CompileFrame,
    CompileRequest,
    CompileTool,
)
from jan_serve.helpers.pool import HelperPool
from tests.integration.helpers.helper_pools import helper_pool
from tests.support.processes import children

pytestmark = pytest.mark.anyio

SMALL = JsonSchemaConstraint({"type": "boolean"})
TOOL = Tool(name="add", parameters={"type": "object", "properties": {"n": {"const": 10**30}}})

# The child's end as it is, with a compiler that does what a constraint's text says.
SCRIPTED = """
import dataclasses, os, signal, sys, time
from types import SimpleNamespace
sys.path.insert(0, {app!r})
import jan_serve.helpers.work.compiling as worker
from jan_serve.helpers.child import serve
from jan_serve.helpers.kinds import COMPILING
from jan_serve.core.constraint import CompiledGrammar
def compiled(constraint):
    text = constraint.text
    if text.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, text))
    if text == "exit":
        os._exit(1)
    if text == "sleep":
        time.sleep(600)
    if text == "spin":
        while True: pass
    if text == "grow":
        return [bytearray(1 << 20) for _ in range(1 << 20)]
    if text == "recurse":
        return compiled(constraint)
    return CompiledGrammar(text)
worker.enforce = lambda constraint: SimpleNamespace(compiled=compiled(constraint))
sys.exit(serve(dataclasses.replace(COMPILING, cpu_limit_s=0.2), worker.compiled))
"""


def scripted() -> tuple[str, ...]:
    app = Path(__file__).resolve().parents[3] / "app"
    return (sys.executable, "-c", SCRIPTED.format(app=str(app)))


def does(text: str) -> GbnfConstraint:
    return GbnfConstraint(text)


def compilers(
    command: Sequence[str] | None = None, **limits: float
) -> AbstractAsyncContextManager[HelperPool[CompileRequest, Compiled]]:
    return helper_pool(COMPILING, command, **limits)


async def test_grammars_are_those_of_the_translator() -> None:
    numbers = {"enum": [10**30, -(2**63), 1.0, 5e-1, "ü\u2028"]}
    cases = [SMALL, JsonSchemaConstraint(numbers), RegexConstraint("[a-c]+"), GbnfConstraint('root ::= "a"')]
    async with compilers() as pool:
        assert children() == [], "a server that only chats needs none"
        for constraint in cases:
            assert await pool.ask(constraint) == enforce(constraint).compiled
        assert len(children()) == 1


async def test_the_parts_of_calls_of_every_format_are_those_of_the_translator() -> None:
    assert len({form.name for form in FORMATS}) == len(FORMATS)
    async with compilers() as pool:
        for form in FORMATS:
            for whitespace in Whitespace:
                tool = CompileTool(
                    form=form.full_name,
                    parameters=TOOL.parameters,
                    strict=False,
                    whitespace=whitespace,
                    order=PropertyOrder.SCHEMA,
                )
                made = await pool.ask(tool)
                assert made == tool_grammar(
                    form, TOOL.parameters, whitespace=whitespace, order=PropertyOrder.SCHEMA
                )
        frame = CompileFrame(form=HERMES.full_name, names=(TOOL.name,), parallel=False, answer=True)
        made = await pool.ask(frame)
        assert made == call_frame(HERMES, (TOOL.name,), parallel=False, answer=True)
        answer = CompileAnswer(form=HERMES.full_name, constraint=SMALL)
        made = await pool.ask(answer)
        assert made == enforce(SMALL, alone=True, terminals=True).piece()


async def test_refusals_come_back_as_they_are() -> None:
    async with compilers() as pool:
        with pytest.raises(UnsupportedSchema) as caught:
            await pool.ask(JsonSchemaConstraint({"properties": {"a": {"$ref": "http://x/y"}}}))
        assert caught.value.pointer == "/properties/a"
        with pytest.raises(UnsupportedPattern):
            await pool.ask(RegexConstraint(r"(a)\1"))
        with pytest.raises(InvalidGrammar) as invalid:
            await pool.ask(does('root ::= "a'))
        assert invalid.value.line == 1
        assert len(children()) == 1


@pytest.mark.parametrize("text", ["spin", "grow", "recurse"])
async def test_a_constraint_that_takes_too_much_is_refused(text: str) -> None:
    async with compilers(scripted()) as pool:
        with pytest.raises(GrammarTooComplex):
            await pool.ask(does(text))
        assert await pool.ask(does("next")) == CompiledGrammar("next")


@pytest.mark.parametrize("text", ["SIGKILL", "SIGSEGV", "exit"])
async def test_one_that_ends_again_is_our_fault(text: str) -> None:
    async with compilers(scripted()) as pool:
        with pytest.raises(EngineCrashed, match="constraint compiler"):
            await pool.ask(does(text))
        assert await pool.ask(does("next")) == CompiledGrammar("next")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
async def test_a_machine_without_memory_refuses_for_a_moment_and_the_next_request_is_served() -> None:
    import resource

    values = {f"p{n}": {"enum": [f"v{n * k}" for k in range(4)]} for n in range(600)}
    constraint = JsonSchemaConstraint({"type": "object", "properties": values})
    async with helper_pool(COMPILING) as pool:
        await pool.ask(SMALL)
        (process,) = children()
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (process.memory_info().vms + (1 << 19), hard))
        for _ in range(3):  # it may also die of it, and another one answers
            with contextlib.suppress(InsufficientMemory):
                await pool.ask(constraint)
        assert isinstance(await pool.ask(constraint), CompiledGrammar)
