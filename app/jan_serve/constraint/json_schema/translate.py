"""JSON Schema to grammar: parse, expand, emit, prune, within one budget."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.emit import Emitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, placed
from jan_serve.constraint.json_schema.json_value import as_object
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.json_schema.memory_places import text_memory
from jan_serve.constraint.limits import budget
from jan_serve.constraint.transform import prune
from jan_serve.core.constraint import Whitespace
from jan_serve.core.text_memory import TextMemory
from jan_serve.errors import UnsupportedSchema


def translate(
    schema: Any, *, whitespace: Whitespace, remembers: bool = False, complements: bool = False
) -> tuple[Grammar, TextMemory]:
    """The grammar of the JSON texts that satisfy `schema`, if they also obey the memory.

    remembers: whether a memory is allowed; without, the grammar needs none. complements: whether it may have
    `Except` and `Both`.
    """
    with budget(), placed(TRUE):
        document = Document(schema)
        expander = Expander(document)
        emitter = Emitter(expander, whitespace=whitespace, remembers=remembers, complements=complements)
        root = expander.terms.positive(document.root)
        grammar = prune(emitter.grammar(root), emitter.rules.complete)
        if emitter.needs_memory is not None:
            raise emitter.needs_memory
        memory = text_memory(expander, root, emitter)
    if grammar is None:
        raise UnsupportedSchema("", _culprit(schema), "no JSON value satisfies the schema")
    return grammar, memory


def _culprit(schema: Any) -> str:
    members = as_object(schema)
    if members is None:
        return "false"
    return next((keyword for keyword in members if keyword in ASSERTIONS), "schema")
