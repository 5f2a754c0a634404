"""Compiles constraints: translates to a grammar, prints it for the engine. Pure; blocks for milliseconds.

Runs in the compiling process; the server calls GrammarCache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jan_serve.constraint import (
    Grammar,
    enforced_schema,
    json_schema_to_grammar,
    parse_gbnf,
    print_enforced,
    print_gbnf,
    regex_to_grammar,
)
from jan_serve.constraint.collector import paused_collection
from jan_serve.constraint.lark_definitions import by_content
from jan_serve.constraint.limits import MAX_STEPS
from jan_serve.core.call_pieces import GrammarPiece
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    Explanation,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
    Whitespace,
)

_ANY_OBJECT: Final = {"type": "object"}
_DEFAULT: Final = Whitespace.CONSISTENT
_MOST_STEPS: Final = 2 * MAX_STEPS
"""To look for a change: the process has a limit of CPU time."""


def compile_constraint(constraint: Constraint, *, with_gbnf: bool = False) -> CompiledGrammar:
    """Translate and print. with_gbnf: to show it; GBNF has no memory. Raises as `translate_constraint`."""
    if with_gbnf or not isinstance(constraint, JsonSchemaConstraint | JsonObjectConstraint):
        return print_grammar(translate_constraint(constraint), with_gbnf=with_gbnf)
    with paused_collection():
        # In a function of its own: its objects are gone when the collector looks again.
        return _with_memory(constraint)


def _with_memory(constraint: JsonSchemaConstraint | JsonObjectConstraint) -> CompiledGrammar:
    schema = constraint.schema if isinstance(constraint, JsonSchemaConstraint) else _ANY_OBJECT
    found = enforced_schema(schema, whitespace=constraint.whitespace or _DEFAULT)
    return CompiledGrammar(gbnf="", lark=found.lark.text, specials=found.lark.specials, memory=found.memory)


def explained(constraint: JsonSchemaConstraint) -> Explanation:
    """What a schema costs, or what to change. Blocks for a second at most."""
    from jan_serve.constraint.explain import explain  # only people ask for it

    compiles, lines = explain(
        constraint.schema, whitespace=constraint.whitespace or _DEFAULT, most_steps=_MOST_STEPS
    )
    return Explanation(compiles, tuple(lines))


def translate_constraint(constraint: Constraint) -> Grammar:
    """Translate. Blocks for as long as the grammar package's budget allows.

    Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex.
    """
    match constraint:
        case JsonObjectConstraint(whitespace=whitespace):
            return json_schema_to_grammar(_ANY_OBJECT, whitespace=whitespace or _DEFAULT)
        case JsonSchemaConstraint(schema=schema, whitespace=whitespace):
            return json_schema_to_grammar(schema, whitespace=whitespace or _DEFAULT)
        case RegexConstraint(pattern=pattern):
            return regex_to_grammar(pattern)
        case GbnfConstraint(text=text):
            return parse_gbnf(text)


def print_grammar(translated: Grammar, *, with_gbnf: bool = False) -> CompiledGrammar:
    """Print a grammar for the engine. Raises GrammarTooComplex.

    A grammar over llguidance's limits is rejected. llama.cpp's sampler, which takes GBNF, is no substitute: it has no
    limits, and a short grammar can fill its memory or never end.
    """
    lark = print_enforced(translated)
    gbnf = print_gbnf(translated) if with_gbnf else ""
    return CompiledGrammar(gbnf=gbnf, lark=lark.text, specials=lark.specials)


def print_piece(translated: Grammar, *, tokens: bool, holes: Mapping[str, str] | None = None) -> GrammarPiece:
    """Print a grammar as a part of a larger one. tokens, holes: see `print_lark_open`. Raises GrammarTooComplex."""
    found = by_content(print_enforced(translated, tokens=tokens, holes=holes))
    return GrammarPiece(found.root, found.bodies, found.specials)
