"""Texts of the expressions that the emitter writes for a schema."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import Expr
from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.emit import Emitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TypeSets
from jan_serve.constraint.recognizer import Recognizer
from jan_serve.constraint.transform import prune
from jan_serve.core.constraint import Whitespace


def emitter_of(
    schema: Any, *, whitespace: Whitespace = Whitespace.COMPACT, remembers: bool = False
) -> tuple[Emitter, TypeSets]:
    """An emitter for a schema, and what the schema allows."""
    document = Document(schema)
    expander = Expander(document)
    emitter = Emitter(expander, whitespace=whitespace, remembers=remembers)
    return emitter, expander.expand(expander.terms.positive(document.root))


def recognizer_of(emit: Emitter, expr: Expr) -> Recognizer | None:
    """Judges texts of an expression; None where no text completes it."""
    grammar = prune(emit.grammar_of(expr), emit.rules.complete)
    return None if grammar is None else Recognizer(grammar)
