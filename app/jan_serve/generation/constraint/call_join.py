"""Joins the frame of calls and the arguments of each tool to the grammars of an answer. Pure and fast."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from jan_serve.core.constraint import (
    CallFrame,
    CallGrammars,
    CompiledGrammar,
    GrammarPiece,
    TextBounds,
    ToolGrammar,
    any_object,
)
from jan_serve.core.uniqueness import Uniqueness, joined_uniqueness
from jan_serve.errors import GrammarTooComplex

MAX_COST: Final = 45_000
"""Limit on all definitions of a grammar, by `cost_of`. llguidance takes about a second to compile that much, and
panics at about twice as much: it counts symbols in 16 bits."""
_ITEMS_A_SYMBOL: Final = 4
_PARAMETERS: Final = re.compile(r"::\w+(?:\([^)]*\))?| %if [^|]*")

_NAMES_SHOWN: Final = 40


ITEMS_REPEAT: Final = "its uniqueItems is not enforced beside an answer under a grammar or regular expression"
TOO_MANY: Final = any_object("the schemas of all tools together are too large for one grammar")


class JoinedTool(NamedTuple):
    """A tool of a request. may_be_loosened: not a tool with `strict`."""

    name: str
    grammar: ToolGrammar
    may_be_loosened: bool


def join_calls(
    frame: CallFrame,
    tools: Sequence[JoinedTool],
    loosened: GrammarPiece,
    answer: GrammarPiece | None,
) -> CallGrammars:
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
    joined: list[CompiledGrammar] = []
    for piece, start, calls in zip((frame.whole, *frame.triggered), starts, locations, strict=True):
        bounds = TextBounds(frame.marks, most, start) if most and frame.marks is not None else None
        unique = None if calls is None else joined_uniqueness(parts, calls)
        can_repeat = unique is not None and (unique.names_repeat or unique.unique)
        joined.append(_joined(piece, fillings, bounds, unique if can_repeat else None))
    warnings = [
        (*part.warnings, ITEMS_REPEAT) if part.uniqueness.unique and not frame.locations else part.warnings
        for part in chosen
    ]
    return CallGrammars(joined[0], tuple(joined[1:]), _named_warnings(tools, warnings))


def _within_limit(
    tools: Sequence[JoinedTool], loosened: GrammarPiece, others: Iterable[GrammarPiece]
) -> list[ToolGrammar]:
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
        chosen[number] = ToolGrammar(loosened, (TOO_MANY,))
    if total > MAX_COST:
        raise GrammarTooComplex(
            "the tools, of which those with `strict` keep their schemas, are too large for one grammar",
            param="tools",
        )
    return chosen


def _cost_of_piece(piece: GrammarPiece) -> int:
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
    frame: GrammarPiece,
    fillings: Mapping[str, GrammarPiece],
    bounds: TextBounds | None,
    uniqueness: Uniqueness | None,
) -> CompiledGrammar:
    definitions = dict(frame.definitions)
    specials = {special.rule: special for special in frame.specials}
    for piece in fillings.values():
        definitions.update(piece.definitions)
        specials.update((special.rule, special) for special in piece.specials)
    lines = [f"start: {frame.root}"]
    lines += [f"{hole}: {piece.root}" for hole, piece in fillings.items()]
    lines += [f"{name}: {body}" for name, body in definitions.items()]
    lark = "\n".join(lines) + "\n"
    return CompiledGrammar(lark, tuple(specials.values()), uniqueness, bounds)


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
