"""Texts of the expressions that the emitter writes for a schema."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import Expr
from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.emit import ValueEmitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TypeSets
from jan_serve.constraint.mode import Mode
from jan_serve.constraint.transform import prune
from jan_serve.core.constraint import Whitespace
from tests.unit.constraint.recognizer import Recognizer


def emitter_of(
    schema: Any, *, whitespace: Whitespace = Whitespace.COMPACT, mode: Mode = Mode.ALONE
) -> tuple[ValueEmitter, TypeSets]:
    """An emitter for a schema, and what the schema allows."""
    document = Document(schema)
    expander = Expander(document)
    emitter = ValueEmitter(expander, whitespace=whitespace, mode=mode)
    return emitter, expander.expand(expander.terms.positive(document.root))


def recognizer_of(emit: ValueEmitter, expr: Expr) -> Recognizer | None:
    """Judges texts of an expression; None where no text completes it."""
    grammar = prune(emit.grammar_of(expr), emit.rules.complete)
    return None if grammar is None else Recognizer(grammar)
