"""Compiles the tools of a request one by one, and joins the frame of calls and the arguments of each."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from jan_serve.core import constraint as core
from jan_serve.core.messages import FormatName, Tool
from jan_serve.errors import GrammarTooComplex, InvalidRequest
from jan_serve.helpers import kinds

AT_ONCE: Final = 4
"""Tools of one request that are compiled or wait for a process: other requests come in between."""
TOOLS_S: Final = 8.0
"""Time for all tools of a request; the schemas of tools that are not ready by then are not enforced."""

_LATE: Final = core.any_object(
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
    constraint: core.Constraint | None,
    whitespace: core.Whitespace,
    order: core.PropertyOrder,
) -> core.CallGrammars:
    """The grammars of calls of any of the tools.

    constraint: for an answer without a call. whitespace, order: of JSON in arguments. A tool whose schema cannot be
    compiled is held to less, with a warning. One whose `strict` is false asks for no more than any object. Raises as
    ConstraintTranslator: for `constraint`, and for tools with `strict`.
    """
    names = tuple(tool.name for tool in tools)
    around = kinds.CompileFrame(form=form, names=names, parallel=parallel, answer=constraint is not None)
    frame = cast(core.CallFrame, await compile_one(around))
    answer: core.GrammarPiece | None = None
    if isinstance(constraint, core.RegexConstraint | core.GbnfConstraint):
        # The answer may begin like a call and be no JSON.
        frame = msgspec.structs.replace(frame, locations=())
    if constraint is not None:
        answer = cast(
            core.GrammarPiece, await compile_one(kinds.CompileAnswer(form=form, constraint=constraint))
        )
    free = kinds.CompileTool(
        form=form, parameters=_ANY_ARGUMENTS, strict=False, whitespace=whitespace, order=order
    )
    loosened = cast(core.ToolGrammar, await compile_one(free)).piece
    compiled = await _compile_each(compile_one, form, tools, whitespace, order)
    joined = [
        JoinedTool(
            tool.name,
            core.ToolGrammar(loosened, (grammar,)) if isinstance(grammar, str) else grammar,
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
    whitespace: core.Whitespace,
    order: core.PropertyOrder,
) -> list[core.ToolGrammar | str]:
    """The grammar of each tool, or the warning of one that has none."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(tool: Tool) -> core.ToolGrammar | str:
        parameters = _ANY_ARGUMENTS if tool.strict is False else tool.parameters
        request = kinds.CompileTool(
            form=form, parameters=parameters, strict=bool(tool.strict), whitespace=whitespace, order=order
        )
        async with gate:
            try:
                return cast(core.ToolGrammar, await compile_one(request))
            except InvalidRequest as error:
                if tool.strict:
                    error.message = f"tool {tool.name}: {error.message}"
                    error.args = (error.message,)
                    raise
                if not isinstance(error, GrammarTooComplex):
                    raise
                return core.any_object(error.message)

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


MAX_COST: Final = 45_000
"""Limit on all definitions of a grammar, by `cost_of`. llguidance takes about a second to compile that much, and
panics at about twice as much: it counts symbols in 16 bits."""
_ITEMS_A_SYMBOL: Final = 4
_PARAMETERS: Final = re.compile(r"::\w+(?:\([^)]*\))?| %if [^|]*")

_NAMES_SHOWN: Final = 40


ITEMS_REPEAT: Final = "its uniqueItems is not enforced beside an answer under a grammar or regular expression"
TOO_MANY: Final = core.any_object("the schemas of all tools together are too large for one grammar")


class JoinedTool(NamedTuple):
    """A tool of a request. may_be_loosened: not a tool with `strict`."""

    name: str
    grammar: core.ToolGrammar
    may_be_loosened: bool


def join_calls(
    frame: core.CallFrame,
    tools: Sequence[JoinedTool],
    loosened: core.GrammarPiece,
    answer: core.GrammarPiece | None,
) -> core.CallGrammars:
    """The grammars of the tools of a request, the largest schemas `loosened` where all are too large for one grammar.

    Raises GrammarTooComplex where those that may not be loosened are.
    """
    others = [max((frame.whole, *frame.triggered), key=_cost_of_piece)]
    if answer is not None:
        others.append(answer)
    chosen = _within_limit(tools, loosened, others)
    fillings = dict(zip(frame.tools, (tool.piece for tool in chosen), strict=True))
    if frame.answer is not None and answer is not None:
        fillings[frame.answer] = answer
    most = {tool.name: part.most for tool, part in zip(tools, chosen, strict=True) if part.most}
    starts = ("", *(frame.starts or ("",) * len(frame.triggered)))
    locations = frame.locations or (None,) * len(starts)
    parts = {tool.name: part.uniqueness for tool, part in zip(tools, chosen, strict=True)}
    joined: list[core.CompiledGrammar] = []
    for piece, start, calls in zip((frame.whole, *frame.triggered), starts, locations, strict=True):
        bounds = core.TextBounds(frame.marks, most, start) if most and frame.marks is not None else None
        unique = None if calls is None else core.joined_uniqueness(parts, calls)
        can_repeat = unique is not None and (unique.names_repeat or unique.unique)
        joined.append(_joined(piece, fillings, bounds, unique if can_repeat else None))
    warnings = [
        (*part.warnings, ITEMS_REPEAT) if part.uniqueness.unique and not frame.locations else part.warnings
        for part in chosen
    ]
    return core.CallGrammars(joined[0], tuple(joined[1:]), _named_warnings(tools, warnings))


def _within_limit(
    tools: Sequence[JoinedTool], loosened: core.GrammarPiece, others: Iterable[core.GrammarPiece]
) -> list[core.ToolGrammar]:
    """The grammar of each tool; the most expensive schemas go first, of equal ones the last."""
    chosen = [tool.grammar for tool in tools]
    used = Counter(name for piece in others for name in piece.definitions)
    costs = {name: cost_of(name, body) for piece in others for name, body in piece.definitions.items()}
    for tool in tools:
        used.update(tool.grammar.piece.definitions.keys())
        costs.update((name, cost_of(name, body)) for name, body in tool.grammar.piece.definitions.items())
    total = sum(costs.values())
    if total <= MAX_COST:
        return chosen
    total += sum(cost_of(name, body) for name, body in loosened.definitions.items() if name not in used)
    used.update(loosened.definitions.keys())
    order = sorted(
        range(len(tools)), key=lambda number: (-_cost_of_piece(tools[number].grammar.piece), -number)
    )
    for number in order:
        if total <= MAX_COST:
            break
        if not tools[number].may_be_loosened or tools[number].grammar.piece.root == loosened.root:
            continue
        for name in tools[number].grammar.piece.definitions:
            used[name] -= 1
            total -= 0 if used[name] else costs[name]
        chosen[number] = core.ToolGrammar(loosened, (TOO_MANY,))
    if total > MAX_COST:
        raise GrammarTooComplex(
            "the tools, of which those with `strict` keep their schemas, are too large for one grammar",
            param="tools",
        )
    return chosen


def _cost_of_piece(piece: core.GrammarPiece) -> int:
    return sum(cost_of(name, body) for name, body in piece.definitions.items())


def cost_of(name: str, body: str) -> int:
    """About the symbols that llguidance (1.9) needs for a definition: one for each text, class and terminal in a rule,
    group and bounded repetition, none for a reference to a rule; and a share for each item, which take time."""
    if name[0].isupper():
        return 1
    body = _PARAMETERS.sub("", body)
    texts = body.count('"') // 2 + body.count("/") // 2 + body.count("T_")
    items = 1 + body.count(" ") - body.count(" | ")
    return 1 + texts + body.count("(") + 8 * body.count("){") + items // _ITEMS_A_SYMBOL


def _joined(
    frame: core.GrammarPiece,
    fillings: Mapping[str, core.GrammarPiece],
    bounds: core.TextBounds | None,
    uniqueness: core.Uniqueness | None,
) -> core.CompiledGrammar:
    definitions = dict(frame.definitions)
    specials = {special.rule: special for special in frame.specials}
    for piece in fillings.values():
        definitions.update(piece.definitions)
        specials.update((special.rule, special) for special in piece.specials)
    lines = [f"start: {frame.root}"]
    lines += [f"{hole}: {piece.root}" for hole, piece in fillings.items()]
    lines += [f"{name}: {body}" for name, body in definitions.items()]
    lark = "\n".join(lines) + "\n"
    return core.CompiledGrammar(lark, tuple(specials.values()), uniqueness, bounds)


def _named_warnings(tools: Sequence[JoinedTool], warnings: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One for all tools that share it, in the order of the tools."""
    names: dict[str, list[str]] = {}
    for tool, of_tool in zip(tools, warnings, strict=True):
        for warning in of_tool:
            names.setdefault(warning, []).append(tool.name)
    return tuple(f"{_named(tools_of)}: {warning}" for warning, tools_of in names.items())


def _named(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"tool {names[0]}"
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"tools {shown} and {more} more" if more > 0 else f"tools {shown}"
