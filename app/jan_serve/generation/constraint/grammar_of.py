"""From a Constraint to a grammar, and to what the engine takes. Pure; blocks for milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jan_serve import grammar as translator
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
)
from jan_serve.errors import GrammarTooComplex

_ANY_OBJECT: Final = {"type": "object"}


def constraint_grammar(constraint: Constraint, named: Mapping[str, str]) -> translator.Grammar:
    """The grammar of a constraint. Blocks for as long as the grammar package's budget allows. `named`: GBNF texts by
    name.

    Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex.
    """
    match constraint:
        case JsonObjectConstraint():
            return translator.json_schema_to_grammar(_ANY_OBJECT)
        case JsonSchemaConstraint(schema=schema):
            return translator.json_schema_to_grammar(schema)
        case RegexConstraint(pattern=pattern):
            return translator.regex_to_grammar(pattern)
        case GbnfConstraint(text=text):
            return translator.parse_gbnf(named.get(text, text))


def compile_constraint(constraint: Constraint, named: Mapping[str, str]) -> CompiledGrammar:
    """`constraint_grammar`, printed for both executors."""
    grammar = constraint_grammar(constraint, named)
    try:
        lark = translator.print_lark(grammar)
    except GrammarTooComplex:
        lark = None  # only GBNF can say it: the engine uses llama.cpp's sampler then
    return CompiledGrammar(gbnf=translator.print_gbnf(grammar), lark=lark)
