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
    SpecialText,
)
from jan_serve.errors import GrammarTooComplex
from jan_serve.grammar.print_lark import LarkText

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
    """`constraint_grammar`, printed."""
    return printed(constraint_grammar(constraint, named))


def printed(grammar: translator.Grammar, *, tokens: bool = True) -> CompiledGrammar:
    """A grammar as the engine takes it. tokens: see `print_lark_open`. Raises GrammarTooComplex.

    llama.cpp's sampler, which takes GBNF, is no way out of llguidance's limits: it has none, and a short grammar can
    fill its memory or never end.
    """
    lark = _lark(grammar, tokens=tokens)
    specials = tuple(SpecialText(rule, text, translator.spelled_out(text)) for rule, text in lark.specials)
    return CompiledGrammar(gbnf=translator.print_gbnf(grammar), lark=lark.text, specials=specials)


def _lark(grammar: translator.Grammar, *, tokens: bool) -> LarkText:
    try:
        return translator.print_lark_open(grammar, tokens=tokens)
    except GrammarTooComplex:
        if not tokens:
            raise
    # Terminals of many characters can be far longer than the rules that they stand for.
    return translator.print_lark_open(grammar, tokens=False)
