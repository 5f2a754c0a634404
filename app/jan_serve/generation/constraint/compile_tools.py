"""Compiles the tools of a request one by one and joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.core.constraint import (
    CallFrame,
    CallGrammars,
    Constraint,
    GbnfConstraint,
    GrammarPiece,
    PropertyOrder,
    RegexConstraint,
    ToolGrammar,
    Whitespace,
    any_object,
)
from jan_serve.core.messages import FormatName, Tool
from jan_serve.errors import GrammarTooComplex, InvalidRequest
from jan_serve.generation.constraint.call_join import JoinedTool, join_calls
from jan_serve.helpers import kinds

AT_ONCE: Final = 4
"""Tools of one request that are compiled or wait for a process: other requests come in between."""
TOOLS_S: Final = 8.0
"""Time for all tools of a request; the schemas of tools that are not ready by then are not enforced."""

_LATE: Final = any_object(
    f"the schemas of all tools take more than {TOOLS_S:.0f} s, so this one waits for the next request"
)
_ANY_ARGUMENTS: Final[dict[str, Any]] = {"type": "object"}

Compile = Callable[[kinds.CompileRequest], Awaitable[kinds.Compiled]]


async def compile_tools(
    compile_one: Compile,
    form: FormatName,
    tools: Sequence[Tool],
    *,
    parallel: bool,
    constraint: Constraint | None,
    whitespace: Whitespace,
    order: PropertyOrder,
) -> CallGrammars:
    """The grammars of calls of any of the tools.

    constraint: for an answer without a call. whitespace, order: of JSON in arguments. A tool whose schema cannot be
    compiled is held to less, with a warning. One whose `strict` is false asks for no more than any object. Raises as
    ConstraintTranslator: for `constraint`, and for tools with `strict`.
    """
    names = tuple(tool.name for tool in tools)
    around = kinds.CompileFrame(form=form, names=names, parallel=parallel, answer=constraint is not None)
    frame = cast(CallFrame, await compile_one(around))
    answer: GrammarPiece | None = None
    if isinstance(constraint, RegexConstraint | GbnfConstraint):
        # The answer may begin like a call and be no JSON.
        frame = msgspec.structs.replace(frame, locations=())
    if constraint is not None:
        answer = cast(GrammarPiece, await compile_one(kinds.CompileAnswer(form=form, constraint=constraint)))
    free = kinds.CompileTool(
        form=form, parameters=_ANY_ARGUMENTS, strict=False, whitespace=whitespace, order=order
    )
    loosened = cast(ToolGrammar, await compile_one(free)).piece
    compiled = await _compile_each(compile_one, form, tools, whitespace, order)
    joined = [
        JoinedTool(
            tool.name,
            ToolGrammar(loosened, (grammar,)) if isinstance(grammar, str) else grammar,
            may_be_loosened=not tool.strict,
        )
        for tool, grammar in zip(tools, compiled, strict=True)
    ]
    # A thousand tools take tens of milliseconds.
    return await asyncio.to_thread(join_calls, frame, joined, loosened, answer)


async def _compile_each(
    compile_one: Compile,
    form: FormatName,
    tools: Sequence[Tool],
    whitespace: Whitespace,
    order: PropertyOrder,
) -> list[ToolGrammar | str]:
    """The grammar of each tool, or the warning of one that has none."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(tool: Tool) -> ToolGrammar | str:
        parameters = _ANY_ARGUMENTS if tool.strict is False else tool.parameters
        request = kinds.CompileTool(
            form=form, parameters=parameters, strict=bool(tool.strict), whitespace=whitespace, order=order
        )
        async with gate:
            try:
                return cast(ToolGrammar, await compile_one(request))
            except InvalidRequest as error:
                if tool.strict:
                    error.message = f"tool {tool.name}: {error.message}"
                    error.args = (error.message,)
                    raise
                if not isinstance(error, GrammarTooComplex):
                    raise
                return any_object(error.message)

    tasks = [asyncio.create_task(one(tool)) for tool in tools]
    try:
        done, late = await asyncio.wait(tasks, timeout=TOOLS_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task in done:
                task.result()
        if any(tool.strict and task in late for tool, task in zip(tools, tasks, strict=True)):
            raise GrammarTooComplex(
                f"the schemas of all tools need more than {TOOLS_S:.0f} s, among them tools with `strict`",
                param="tools",
            )
        return [_LATE if task in late else task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
