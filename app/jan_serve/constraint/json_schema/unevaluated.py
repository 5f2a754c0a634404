"""`unevaluatedProperties` and `unevaluatedItems`: closing a spec over what its own schema has not evaluated.

Specs carry the evaluated set (`seen`): the expander splits alternatives until each spec has it exactly.
"""

from __future__ import annotations

from msgspec.structs import replace

from jan_serve.constraint.json_schema.algebra import Algebra
from jan_serve.constraint.json_schema.document import Document, Subschema
from jan_serve.constraint.json_schema.ir import (
    ArraySpec,
    Conj,
    Contains,
    NameRule,
    ObjectSpec,
    Terms,
    TypeSets,
)
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, NO_STRING
from jan_serve.errors import UnsupportedSchema


class Unevaluated:
    """Applies the two keywords of one subschema."""

    def __init__(self, document: Document, terms: Terms, algebra: Algebra) -> None:
        self._document = document
        self._terms = terms
        self._algebra = algebra

    def close(self, subschema: Subschema, sets: TypeSets) -> TypeSets:
        """The sets with the `unevaluated` keywords of `subschema` applied to what nothing in it has evaluated."""
        schema = subschema.schema
        if "unevaluatedProperties" in schema and sets.object:
            conj = self._terms.positive(self._document.child(subschema, "unevaluatedProperties"))
            sets = replace(sets, object=tuple(self._close_object(spec, conj) for spec in sets.object))
        if "unevaluatedItems" in schema and sets.array:
            conj = self._terms.positive(self._document.child(subschema, "unevaluatedItems"))
            sets = replace(sets, array=tuple(self._close_array(subschema, spec, conj) for spec in sets.array))
        return sets

    def _close_object(self, spec: ObjectSpec, conj: Conj) -> ObjectSpec:
        if conj:
            spec = self._algebra.add_rule(spec, NameRule(strings.complement(spec.seen), conj))
        return replace(spec, seen=ANY_STRING)

    def _close_array(self, subschema: Subschema, spec: ArraySpec, conj: Conj) -> ArraySpec:
        seen = spec.seen
        if seen is not None and conj:
            if spec.seen_if:
                if conj != self._terms.false:
                    raise UnsupportedSchema(subschema.pointer, "unevaluatedItems", "a schema beside contains")
                return self._close_by_contains(subschema, spec)
            while len(spec.prefix) < seen:
                spec = replace(spec, prefix=(*spec.prefix, spec.rest))
            prefix = tuple(
                self._terms.conjoin(part, conj) if i >= seen else part for i, part in enumerate(spec.prefix)
            )
            spec = replace(spec, prefix=prefix, rest=self._terms.conjoin(spec.rest, conj))
        return replace(spec, seen=None)

    def _close_by_contains(self, subschema: Subschema, spec: ArraySpec) -> ArraySpec:
        """Items after the evaluated ones have to satisfy one of the conditions: none may fail them all."""
        if any(len(c) != 1 for c in spec.seen_if):
            return replace(spec, seen=None)
        fails_all: Conj = tuple(c[0].opposite for c in spec.seen_if)
        assert spec.seen is not None
        return replace(spec, seen=None, contains=(*spec.contains, Contains(fails_all, 0, 0, spec.seen)))


def unseen(sets: TypeSets) -> TypeSets:
    """The sets with nothing evaluated: a schema that fails leaves no annotations."""
    arrays = tuple(replace(spec, seen=0, seen_if=()) for spec in sets.array)
    return replace(
        sets,
        array=arrays,
        object=tuple(replace(spec, seen=NO_STRING) for spec in sets.object),
    )
