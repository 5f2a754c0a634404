"""JSON Schema to grammar: parse, expand, emit, prune, within one budget."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.emit import ValueEmitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, placed
from jan_serve.constraint.json_schema.json_value import as_object
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.json_schema.unique_locations import uniqueness_of
from jan_serve.constraint.limits import budget
from jan_serve.constraint.mode import Mode
from jan_serve.constraint.transform import prune
from jan_serve.constraint.translated import Translated
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import UnsupportedSchema


def translate(schema: Any, *, whitespace: Whitespace, mode: Mode) -> Translated:
    """The grammar of the JSON texts that satisfy `schema`, if they also obey the uniqueness."""
    with budget(), placed(TRUE):
        document = Document(schema)
        expander = Expander(document)
        emitter = ValueEmitter(expander, whitespace=whitespace, mode=mode)
        root = expander.terms.positive(document.root)
        grammar = prune(emitter.grammar(root), emitter.rules.complete)
        if emitter.needs_comparison is not None:
            raise emitter.needs_comparison
        uniqueness = uniqueness_of(expander, root, emitter)
    if grammar is None:
        raise UnsupportedSchema("", _culprit(schema), "no JSON value satisfies the schema")
    return Translated(grammar, uniqueness)


def _culprit(schema: Any) -> str:
    members = as_object(schema)
    if members is None:
        return "false"
    return next((keyword for keyword in members if keyword in ASSERTIONS), "schema")
