"""The complement of one schema, as a union over its keywords. A failing keyword fails for one JSON type only, so each
part is the set of values of that type that break it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from jan_serve.constraint.json_schema import ir
from jan_serve.constraint.json_schema.assertions import Assertions
from jan_serve.constraint.json_schema.document import Document, Subschema, as_array, as_object
from jan_serve.constraint.json_schema.scalars import numbers, strings
from jan_serve.constraint.json_schema.scalars.numbers import ANY_NUMBER, NumberSpec
from jan_serve.errors import UnsupportedSchema


class Negation:
    """Complements of the assertion keywords of a subschema. Applicators in place are complemented by the expander."""

    def __init__(self, document: Document, terms: ir.Terms, assertions: Assertions) -> None:
        self._document = document
        self._terms = terms
        self._assertions = assertions

    def parts(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        """One set per keyword: the values that break it; without `marks`. Raises UnsupportedSchema for what has no
        complement."""
        schema = subschema.schema
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            reason = "unevaluated items or properties cannot be negated"
            raise UnsupportedSchema(subschema.pointer, "not", reason)
        if "type" in schema:
            yield self._other_types(subschema)
        yield self._numbers(subschema)
        outside = strings.complement(self._assertions.string(subschema))
        # The caller pays for each part.
        if outside != strings.NO_STRING:
            yield replace(ir.NO_VALUE, string=outside)
        if arrays := tuple(self._arrays(subschema)):
            yield replace(ir.NO_VALUE, array=arrays)
        if objects := tuple(self._objects(subschema)):
            yield replace(ir.NO_VALUE, object=objects)

    def _other_types(self, subschema: Subschema) -> ir.TypeSets:
        allowed = self._assertions.types(subschema)
        number = ANY_NUMBER
        if allowed.number:
            number = () if allowed.number[0].integer is None else (NumberSpec(integer=False),)
        return ir.TypeSets(
            not allowed.null,
            ir.ANY_BOOLEAN & ~allowed.boolean,
            number,
            strings.complement(allowed.string),
            () if allowed.array else ir.ANY_VALUE.array,
            () if allowed.object else ir.ANY_VALUE.object,
        )

    def other_values(self, subschema: Subschema, value: object) -> ir.TypeSets:
        """Everything but one constant."""
        if value is None:
            return replace(ir.ANY_VALUE, null=False)
        if isinstance(value, bool):
            return replace(ir.ANY_VALUE, boolean=ir.FALSE_ONLY if value else ir.TRUE_ONLY)
        if isinstance(value, int | float):
            point = self._assertions.point(subschema, value)
            assert point.low is not None
            return replace(ir.ANY_VALUE, number=numbers.without(ANY_NUMBER, point.low))
        if isinstance(value, str):
            return replace(ir.ANY_VALUE, string=strings.complement(strings.OneOfStrings((value,))))
        items = as_array(value)
        if items is not None:
            parts = tuple((self._document.constant(subschema, item).positive,) for item in items)
            return replace(ir.ANY_VALUE, array=tuple(self._other_arrays(parts)))
        members = as_object(value) or {}
        props: dict[str, ir.Conj] = {
            name: (self._document.constant(subschema, v).positive,) for name, v in members.items()
        }
        return replace(ir.ANY_VALUE, object=tuple(self._other_objects(props)))

    def _other_arrays(self, parts: tuple[ir.Conj, ...]) -> Iterator[ir.ArraySpec]:
        if parts:
            yield ir.ArraySpec(high=len(parts) - 1)
        yield ir.ArraySpec(low=len(parts) + 1)
        for index, conj in enumerate(parts):
            yield ir.ArraySpec((*[()] * index, (conj[0].opposite,)), low=index + 1)

    def _other_objects(self, props: dict[str, ir.Conj]) -> Iterator[ir.ObjectSpec]:
        for name, conj in props.items():
            yield ir.ObjectSpec({name: self._terms.false})
            yield ir.ObjectSpec({name: (conj[0].opposite,)}, required=(name,))
        others = strings.complement(strings.OneOfStrings(tuple(props)))
        yield ir.ObjectSpec(exists=(ir.NameRule(others, ()),))

    def _numbers(self, subschema: Subschema) -> ir.TypeSets:
        specs: list[NumberSpec] = []
        for keyword, bound, is_open in self._assertions.bounds(subschema):
            low, high = (None, bound) if keyword == "minimum" else (bound, None)
            specs.append(
                NumberSpec(low, low is not None and not is_open, high, high is not None and not is_open)
            )
        multiple = self._assertions.multiple_of(subschema)
        if multiple is not None:
            specs.append(NumberSpec(not_multiples=frozenset({multiple})))
        return replace(ir.NO_VALUE, number=tuple(specs))

    def _arrays(self, subschema: Subschema) -> Iterator[ir.ArraySpec]:
        schema = subschema.schema
        if schema.get("uniqueItems") is True:
            raise UnsupportedSchema(subschema.pointer, "not", "uniqueItems cannot be negated")
        spec = self._assertions.array(subschema)
        if spec.low:
            yield ir.ArraySpec(high=spec.low - 1)
        if spec.high is not None:
            yield ir.ArraySpec(low=spec.high + 1)
        for index, conj in enumerate(spec.prefix):
            if conj:
                failing = self._terms.negated(conj)
                yield ir.ArraySpec((*[()] * index, failing), low=index + 1)
        if spec.rest:
            start = len(spec.prefix)
            yield ir.ArraySpec(
                contains=(ir.Contains(self._terms.negated(spec.rest), 1, None, start),), low=start + 1
            )
        for c in spec.contains:
            if c.low:
                yield ir.ArraySpec(contains=(replace(c, low=0, high=c.low - 1),))
            if c.high is not None:
                yield ir.ArraySpec(contains=(replace(c, low=c.high + 1, high=None),), low=c.high + 1)

    def _without(self, name: str, conj: ir.Conj, required: bool) -> Iterator[ir.ObjectSpec]:
        """Objects in which a listed property breaks what is asked of it."""
        if required:
            # Absent, or present with a wrong value: one spec says both.
            yield ir.ObjectSpec({name: self._terms.negated(conj) if conj else self._terms.false})
        elif conj:
            yield ir.ObjectSpec({name: self._terms.negated(conj)}, required=(name,))

    def marks(self, subschema: Subschema) -> Iterator[tuple[ir.ObjectSpec, ir.ObjectSpec]]:
        """The properties that are to be one of some constants, each as (objects that break it, all others). They
        usually tell alternatives apart, so `parts` leaves them out: the other keywords need to be broken only where
        these hold, and complements of alternatives hardly overlap."""
        properties = self._assertions.properties(subschema)
        required = self._assertions.required(subschema)
        for name in [name for name, schema in properties.items() if _has_constants(schema)]:
            conj = self._terms.positive(self._document.child(subschema, "properties", name))
            for broken in self._without(name, conj, name in required):
                yield broken, ir.ObjectSpec({name: conj}, required=(name,) if name in required else ())

    def _objects(self, subschema: Subschema) -> Iterator[ir.ObjectSpec]:
        schema = subschema.schema
        false = self._terms.false
        required = self._assertions.required(subschema)
        properties = self._assertions.properties(subschema)
        for name in required:
            if name not in properties:
                yield ir.ObjectSpec({name: false})
        if low := self._assertions.count(subschema, "minProperties"):
            yield ir.ObjectSpec(high=low - 1)
        if (high := self._assertions.count(subschema, "maxProperties")) is not None:
            yield ir.ObjectSpec(low=high + 1)
        for name in properties:
            if not _has_constants(properties[name]):
                conj = self._terms.positive(self._document.child(subschema, "properties", name))
                yield from self._without(name, conj, name in required)
        for rule in self._assertions.pattern_rules(subschema):
            if rule.conj:
                yield ir.ObjectSpec(exists=(ir.NameRule(rule.names, self._terms.negated(rule.conj)),))
        if "additionalProperties" in schema:
            conj = self._terms.positive(self._document.child(subschema, "additionalProperties"))
            if conj:
                listed = strings.complement(strings.OneOfStrings(tuple(properties)))
                names = strings.intersect(listed, self._assertions.additional_names(subschema))
                yield ir.ObjectSpec(exists=(ir.NameRule(names, self._terms.negated(conj)),))


def _has_constants(schema: object) -> bool:
    members = as_object(schema)
    return members is not None and ("const" in members or "enum" in members)
