"""Constraints on generated text: JSON Schema, regular expressions and GBNF over one grammar AST.

Pure: no I/O, no clock, no llama.cpp. A constraint is enforced exactly, or refused with the place and the reason.
"""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.collector import paused_collection
from jan_serve.constraint.enforced import enforced_schema, print_enforced
from jan_serve.constraint.json_schema.bundle import bundled
from jan_serve.constraint.json_schema.translate import translate as translate_schema
from jan_serve.constraint.lark_quoting import spelled_out
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.constraint.print_lark import OnlyCharacters, print_lark, print_lark_open
from jan_serve.constraint.recognizer import Recognizer, matches
from jan_serve.constraint.regex.translate import translate as translate_regex
from jan_serve.core.constraint import Whitespace
from jan_serve.core.text_memory import TextMemory

__all__ = [
    "Grammar",
    "OnlyCharacters",
    "Recognizer",
    "Whitespace",
    "bundled",
    "enforced_schema",
    "json_schema_to_gbnf",
    "json_schema_to_grammar",
    "json_schema_with_memory",
    "matches",
    "parse_gbnf",
    "print_enforced",
    "print_gbnf",
    "print_lark",
    "print_lark_open",
    "regex_to_gbnf",
    "regex_to_grammar",
    "spelled_out",
]


def json_schema_to_grammar(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> Grammar:
    """The grammar of the JSON texts that satisfy `schema` (an object or a boolean, drafts 4 to 2020-12).

    Properties are written in the order of `properties`, other names after the last required one. Takes milliseconds;
    bounded work.

    Raises UnsupportedSchema (pointer, keyword, reason) if it cannot be enforced exactly, InvalidSchema if it is
    not a schema, GrammarTooComplex above a limit.
    """
    with paused_collection():
        return translate_schema(schema, whitespace=whitespace)[0]


def json_schema_with_memory(
    schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT, complements: bool = False
) -> tuple[Grammar, TextMemory]:
    """As `json_schema_to_grammar`, for an executor with a memory: unique items of large sets are not refused.

    complements: the grammar may have `Except` and `Both`, which are short and have fast masks, and which only Lark's
    terminals know.
    """
    with paused_collection():
        return translate_schema(schema, whitespace=whitespace, remembers=True, complements=complements)


def json_schema_to_gbnf(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> str:
    """`json_schema_to_grammar`, printed as GBNF for llama.cpp."""
    with paused_collection():
        return print_gbnf(json_schema_to_grammar(schema, whitespace=whitespace))


def regex_to_grammar(pattern: str) -> Grammar:
    """The grammar of the texts that an ECMA-262 expression matches from end to end.

    Raises UnsupportedPattern (position, reason) for a syntax error or a pattern that is not regular,
    GrammarTooComplex above a limit.
    """
    with paused_collection():
        return translate_regex(pattern)


def regex_to_gbnf(pattern: str) -> str:
    """`regex_to_grammar`, printed as GBNF for llama.cpp."""
    return print_gbnf(regex_to_grammar(pattern))
