"""Grammars of schemas, not printed."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.json_schema.translate import translate
from jan_serve.constraint.translation import Mode
from jan_serve.core.constraint import Whitespace
from jan_serve.core.uniqueness import Uniqueness


def grammar_alone(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> Grammar:
    """Holds without a comparison of names and items beside it."""
    return translate(schema, whitespace=whitespace, mode=Mode.ALONE).grammar


def grammar_in_rules(
    schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT, mode: Mode = Mode.IN_RULES
) -> tuple[Grammar, Uniqueness]:
    """With what has to be unique beside it."""
    found = translate(schema, whitespace=whitespace, mode=mode)
    assert found.uniqueness is not None
    return found.grammar, found.uniqueness
