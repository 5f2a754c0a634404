"""A JSON Schema as the server enforces it: Lark for llguidance, and a memory beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.json_schema.ir import TRUE, placed
from jan_serve.constraint.json_schema.translate import translate
from jan_serve.constraint.print_lark import LarkText, OnlyCharacters, print_lark_open
from jan_serve.core.constraint import Whitespace
from jan_serve.core.text_memory import TextMemory
from jan_serve.errors import GrammarTooComplex


class EnforcedSchema(NamedTuple):
    """What an executor needs, and the grammar that was printed."""

    grammar: Grammar
    memory: TextMemory
    lark: LarkText


def enforced_schema(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> EnforcedSchema:
    """With what only terminals can describe, which is short and has fast masks; in automata where that is too large.

    Raises as `json_schema_to_grammar`; unique items of large sets are not refused.
    """
    found, memory = translate(schema, whitespace=whitespace, remembers=True, complements=True)
    try:
        lark = print_enforced(found)
    except GrammarTooComplex as error:
        found, memory = translate(schema, whitespace=whitespace, remembers=True, complements=False)
        with placed(TRUE):
            lark = print_enforced(found, tokens=not isinstance(error, OnlyCharacters))
    return EnforcedSchema(found, memory, lark)


def print_enforced(
    grammar: Grammar, *, tokens: bool = True, holes: Mapping[str, str] | None = None
) -> LarkText:
    """As `print_lark_open`; without terminals if they are too large."""
    try:
        return print_lark_open(grammar, tokens=tokens, holes=holes)
    except GrammarTooComplex:
        if not tokens:
            raise
    # Terminals of many characters can be far longer than the rules that they replace.
    return print_lark_open(grammar, tokens=False, holes=holes)
