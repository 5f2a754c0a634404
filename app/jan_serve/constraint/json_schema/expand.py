"""Expands a conjunction of terms into the values it allows per JSON type: the middle step of the translation. In-place
applicators (allOf, anyOf, oneOf, not, if, $ref, dependencies) are resolved here into unions of specs. Parts of specs
stay unexpanded conjunctions, so a recursive schema is expanded one level at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations

from msgspec.structs import replace

from jan_serve.constraint.json_schema import ir
from jan_serve.constraint.json_schema.algebra import Algebra
from jan_serve.constraint.json_schema.assertions import Assertions
from jan_serve.constraint.json_schema.document import Document, Subschema, Term, as_array, as_object
from jan_serve.constraint.json_schema.keywords import ASSERTIONS, IN_PLACE_KEYWORDS, REFERENCES, UNEVALUATED
from jan_serve.constraint.json_schema.negation import Negation
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, NO_STRING
from jan_serve.constraint.limits import MAX_IN_PLACE_DEPTH, spend
from jan_serve.errors import GrammarTooComplex, InvalidSchema, UnsupportedSchema

# Depth limit of the emptiness check. Deeper conjunctions count as inhabited; unproductive rules are pruned later.
_EMPTINESS_DEPTH = 4
_MAX_SPLIT = 5


class _InProgress(UnsupportedSchema):
    """A term is needed while it is being expanded: a cycle in place, or an emptiness check that came too early."""


class Expander:
    """Expansion with memory: each term and each conjunction of a document is expanded once."""

    def __init__(self, document: Document) -> None:
        self.terms = ir.Terms(document)
        self.algebra = Algebra(self.terms, self.is_nothing, self.expand)
        self._document = document
        self._assertions = Assertions(document, self.terms)
        self._negation = Negation(document, self.terms, self._assertions)
        self._by_term: dict[Term, ir.TypeSets | None] = {}
        self._by_conj: dict[ir.Conj, ir.TypeSets] = {}
        self._empty: dict[ir.Conj, bool] = {}
        self._depth = 0
        self._emptiness_depth = 0
        self._tracks = document.mentions(UNEVALUATED)
        self._assertions.tracks = self._tracks

    def expand(self, conj: ir.Conj) -> ir.TypeSets:
        if not conj:
            return ir.ANY_VALUE
        known = self._by_conj.get(conj)
        if known is None:
            known = self.term(conj[0])
            for term in conj[1:]:
                known = self.algebra.intersect(known, self.term(term))
            self._by_conj[conj] = known
        return known

    def term(self, term: Term) -> ir.TypeSets:
        """The values that satisfy one term. Raises UnsupportedSchema for a schema that applies itself in place."""
        if term in self._by_term:
            known = self._by_term[term]
            if known is None:
                reason = "the schema applies itself to the same value"
                raise _InProgress(term.subschema.pointer, "$ref", reason)
            return known
        self._by_term[term] = None
        self._depth += 1
        try:
            with ir.placed((term,)):
                result = self._expanded(term)
        except BaseException:
            del self._by_term[term]
            raise
        finally:
            self._depth -= 1
        self._by_term[term] = result
        return result

    def _expanded(self, term: Term) -> ir.TypeSets:
        if self._depth > MAX_IN_PLACE_DEPTH:
            raise GrammarTooComplex(f"more than {MAX_IN_PLACE_DEPTH} schemas apply to one value in a chain")
        spend()
        if term.positive:
            return self._holds(term.subschema)
        failed = self._fails(term.subschema)
        return _unseen(failed) if self._tracks else failed

    def is_nothing(self, conj: ir.Conj) -> bool:
        """Whether certainly nothing satisfies the conjunction."""
        if not conj:
            return False
        if conj == self.terms.false:
            return True
        known = self._empty.get(conj)
        if known is None:
            is_open = any(self._by_term.get(term, self) is None for term in conj)
            if is_open or self._emptiness_depth >= _EMPTINESS_DEPTH:
                return False
            self._empty[conj] = False
            self._emptiness_depth += 1
            try:
                with ir.placed(conj):
                    known = self.is_empty(self.expand(conj))
            except _InProgress:
                # A part refers back to the term being expanded, so emptiness is still unknown.
                del self._empty[conj]
                return False
            finally:
                self._emptiness_depth -= 1
            self._empty[conj] = known
        return known

    def is_empty(self, sets: ir.TypeSets) -> bool:
        """Whether certainly no value of any type is left."""
        if sets.null or sets.boolean or sets.number:
            return False
        return (
            all(self.algebra.is_empty_array(spec) for spec in sets.array)
            and all(self.algebra.is_empty_object(spec) for spec in sets.object)
            and strings.is_empty(sets.string)
        )

    # A schema that holds

    def _holds(self, subschema: Subschema) -> ir.TypeSets:
        schema = subschema.schema
        if schema is False:
            return ir.NO_VALUE
        if schema is True:
            return ir.ANY_VALUE
        result = self._assertions.allowed(subschema)
        if "const" in schema:
            result = self.algebra.intersect(result, self._assertions.constant(subschema, schema["const"]))
        if "enum" in schema:
            result = self.algebra.intersect(result, self._enum(subschema))
        if not IN_PLACE_KEYWORDS.isdisjoint(schema):
            for part in self._in_place(subschema):
                result = self.algebra.intersect(result, part)
            for children in self._exclusive(subschema):
                result = self._one_of(children, result)
        if result.object:
            for part in self._object_applicators(subschema):
                result = self.algebra.intersect(result, part)
        if self._tracks:
            result = self._close(subschema, result)
        return result

    def _enum(self, subschema: Subschema) -> ir.TypeSets:
        values = self._assertions.values(subschema)
        texts = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
        result = replace(ir.NO_VALUE, string=strings.OneOfStrings(texts)) if texts else ir.NO_VALUE
        for value in values:
            if not isinstance(value, str):
                result = self.algebra.unite(result, self._assertions.constant(subschema, value))
        return result

    def _children(self, subschema: Subschema, keyword: str) -> list[Subschema]:
        parts = as_array(subschema.schema[keyword])
        if parts is None:
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must be an array of schemas")
        return [self._document.child(subschema, keyword, i) for i in range(len(parts))]

    def _in_place(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        schema = subschema.schema
        positive, negative = self.terms.positive, self.terms.negative
        for keyword in [name for name in REFERENCES if name in schema]:
            yield self.expand(positive(self._document.resolve(subschema, keyword)))
        if "allOf" in schema:
            for child in self._children(subschema, "allOf"):
                conj = positive(child)
                if not _is_one_of(conj):
                    yield self.expand(conj)
        if "anyOf" in schema:
            yield self._any_of(self._children(subschema, "anyOf"))
        if "not" in schema:
            yield self.expand(negative(self._document.child(subschema, "not")))
        if "if" in schema and ("then" in schema or "else" in schema or self._tracks):
            yield self._conditional(subschema)

    def _any_of(self, children: list[Subschema]) -> ir.TypeSets:
        conjs = list(dict.fromkeys(self.terms.positive(child) for child in children))
        if self._tracks and 1 < len(conjs) <= _MAX_SPLIT:
            return self._split(children)
        return self.algebra.unite_all([self.expand(conj) for conj in conjs])

    def _split(self, children: list[Subschema]) -> ir.TypeSets:
        """anyOf by which branches hold exactly: all that hold add to the evaluated set."""
        result = ir.NO_VALUE
        for mask in range(1, 1 << len(children)):
            sets = ir.ANY_VALUE
            for index, child in enumerate(children):
                holds = mask >> index & 1
                term = self.terms.positive(child) if holds else self.terms.negative(child)
                sets = self.algebra.intersect(sets, self.expand(term))
            if not self.is_empty(sets):
                result = self.algebra.unite(result, sets)
        return result

    def _exclusive(self, subschema: Subschema) -> Iterator[list[Subschema]]:
        """The alternatives of each `oneOf` of a subschema, those that `allOf` brings included."""
        if "oneOf" in subschema.schema:
            yield self._children(subschema, "oneOf")
        for child in self._children(subschema, "allOf") if "allOf" in subschema.schema else []:
            conj = self.terms.positive(child)
            if _is_one_of(conj):
                yield self._children(conj[0].subschema, "oneOf")

    def _one_of(self, children: list[Subschema], others: ir.TypeSets) -> ir.TypeSets:
        """What exactly one branch allows, of what all other keywords do: branches that overlap there have each other
        taken out."""
        sets = [self.algebra.intersect(others, self.expand(self.terms.positive(child))) for child in children]
        values = self.algebra.discriminators(sets)
        clashes: list[list[int]] = [[] for _ in sets]
        for i, j in combinations(range(len(sets)), 2):
            if values is not None and values[i].isdisjoint(values[j]):
                continue
            spend()
            if not self.is_empty(self.algebra.intersect(sets[i], sets[j])):
                clashes[i].append(j)
                clashes[j].append(i)
        for i, own in enumerate(clashes):
            for j in own:
                sets[i] = self.algebra.intersect(sets[i], self.expand(self.terms.negative(children[j])))
        return self.algebra.unite_all(sets)

    def _conditional(self, subschema: Subschema) -> ir.TypeSets:
        condition = self._document.child(subschema, "if")

        def branch(keyword: str, test: ir.Conj) -> ir.TypeSets:
            if keyword not in subschema.schema:
                return self.expand(test)
            then = self.terms.positive(self._document.child(subschema, keyword))
            return self.algebra.intersect(self.expand(test), self.expand(then))

        return self.algebra.unite(
            branch("then", self.terms.positive(condition)), branch("else", self.terms.negative(condition))
        )

    # Keywords of objects that apply more than their parts

    def _object_applicators(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        schema = subschema.schema
        if "propertyNames" in schema:
            names = self.expand(self.terms.positive(self._document.child(subschema, "propertyNames"))).string
            if names != ANY_STRING:
                rule = ir.NameRule(strings.complement(names), self.terms.false)
                yield replace(ir.ANY_VALUE, object=(ir.ObjectSpec(rules=(rule,)),))
        for name, names, conj in self._dependencies(subschema):
            absent = replace(ir.ANY_VALUE, object=(ir.ObjectSpec({name: self.terms.false}),))
            brought = (
                replace(ir.ANY_VALUE, object=(ir.ObjectSpec(required=names),)) if names else self.expand(conj)
            )
            if self._tracks:
                # Only a property that is there lets its schema evaluate others.
                present = replace(ir.NO_VALUE, object=(ir.ObjectSpec(required=(name,)),))
                brought = self.algebra.intersect(brought, present)
            yield self.algebra.unite(absent, brought)

    def _dependencies(self, subschema: Subschema) -> Iterator[tuple[str, tuple[str, ...], ir.Conj]]:
        """(property, the names or the schema that its presence asks for) of all three spellings."""
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            members = as_object(subschema.schema.get(keyword, {}))
            if members is None:
                raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must be an object")
            for name, value in members.items():
                names = [value] if isinstance(value, str) and keyword == "dependencies" else as_array(value)
                if names is None or keyword == "dependentSchemas":
                    yield name, (), self.terms.positive(self._document.child(subschema, keyword, name))
                elif all(isinstance(other, str) for other in names):
                    yield name, tuple(dict.fromkeys(names)), ir.TRUE
                else:
                    raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must list property names")

    # A schema that fails

    def _fails(self, subschema: Subschema) -> ir.TypeSets:
        schema = subschema.schema
        if schema is False:
            return ir.ANY_VALUE
        if schema is True:
            return ir.NO_VALUE
        self._document.check_negated(subschema)
        intersect, unite = self.algebra.intersect, self.algebra.unite
        result, held = ir.NO_VALUE, ir.ANY_VALUE
        for breaks, holds in self._negation.marks(subschema):
            result = unite(result, intersect(held, replace(ir.NO_VALUE, object=(breaks,))))
            held = intersect(held, replace(ir.ANY_VALUE, object=(holds,)))
        for part in self._failing_parts(subschema):
            result = unite(result, intersect(held, part))
        return result

    def _failing_parts(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        schema = subschema.schema
        positive, negative, expand = self.terms.positive, self.terms.negative, self.expand
        yield from self._negation.parts(subschema)
        if "const" in schema:
            yield self._negation.other_values(subschema, schema["const"])
        if "enum" in schema:
            others = [self._negation.other_values(subschema, v) for v in self._assertions.values(subschema)]
            yield reduce(self.algebra.intersect, others, ir.ANY_VALUE)
        for keyword in [name for name in REFERENCES if name in schema]:
            yield expand(negative(self._document.resolve(subschema, keyword)))
        if "allOf" in schema:
            for child in self._children(subschema, "allOf"):
                yield expand(negative(child))
        if "anyOf" in schema:
            yield self._none_of(self._children(subschema, "anyOf"))
        if "oneOf" in schema:
            children = self._children(subschema, "oneOf")
            yield self._none_of(children)
            for first, second in combinations(children, 2):
                yield expand(self.terms.conjoin(positive(first), positive(second)))
        if "not" in schema:
            yield expand(positive(self._document.child(subschema, "not")))
        if "if" in schema:
            yield from self._failing_conditional(subschema)
        yield from self._failing_object_applicators(subschema)

    def _failing_conditional(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        condition = self._document.child(subschema, "if")
        tests = (("then", self.terms.positive(condition)), ("else", self.terms.negative(condition)))
        for keyword, test in tests:
            if keyword in subschema.schema:
                failed = self.terms.negative(self._document.child(subschema, keyword))
                yield self.algebra.intersect(self.expand(test), self.expand(failed))

    def _none_of(self, children: list[Subschema]) -> ir.TypeSets:
        return reduce(
            self.algebra.intersect,
            [self.expand(self.terms.negative(child)) for child in children],
            ir.ANY_VALUE,
        )

    def _failing_object_applicators(self, subschema: Subschema) -> Iterator[ir.TypeSets]:
        schema = subschema.schema
        if "propertyNames" in schema:
            names = self.expand(self.terms.positive(self._document.child(subschema, "propertyNames"))).string
            rule = ir.NameRule(strings.complement(names), ir.TRUE)
            yield replace(ir.NO_VALUE, object=(ir.ObjectSpec(exists=(rule,)),))
        for name, names, conj in self._dependencies(subschema):
            present = replace(ir.NO_VALUE, object=(ir.ObjectSpec({name: ir.TRUE}, required=(name,)),))
            lacks = tuple(ir.ObjectSpec({other: self.terms.false}) for other in names)
            failed = self.expand(self.terms.negated(conj)) if conj else replace(ir.NO_VALUE, object=lacks)
            yield self.algebra.intersect(present, failed)

    # Specs carry the evaluated set (`seen`): alternatives are split until each spec has it exactly.

    def _close(self, subschema: Subschema, sets: ir.TypeSets) -> ir.TypeSets:
        """The sets with the `unevaluated` keywords of `subschema` applied to what nothing in it has evaluated."""
        schema = subschema.schema
        if "unevaluatedProperties" in schema and sets.object:
            conj = self.terms.positive(self._document.child(subschema, "unevaluatedProperties"))
            sets = replace(sets, object=tuple(self._close_object(spec, conj) for spec in sets.object))
        if "unevaluatedItems" in schema and sets.array:
            conj = self.terms.positive(self._document.child(subschema, "unevaluatedItems"))
            sets = replace(sets, array=tuple(self._close_array(subschema, spec, conj) for spec in sets.array))
        return sets

    def _close_object(self, spec: ir.ObjectSpec, conj: ir.Conj) -> ir.ObjectSpec:
        if conj:
            spec = self.algebra.add_rule(spec, ir.NameRule(strings.complement(spec.seen), conj))
        return replace(spec, seen=ANY_STRING)

    def _close_array(self, subschema: Subschema, spec: ir.ArraySpec, conj: ir.Conj) -> ir.ArraySpec:
        seen = spec.seen
        if seen is not None and conj:
            if spec.seen_if:
                if conj != self.terms.false:
                    raise UnsupportedSchema(subschema.pointer, "unevaluatedItems", "a schema beside contains")
                return self._close_by_contains(subschema, spec)
            while len(spec.prefix) < seen:
                spec = replace(spec, prefix=(*spec.prefix, spec.rest))
            prefix = tuple(
                self.terms.conjoin(part, conj) if i >= seen else part for i, part in enumerate(spec.prefix)
            )
            spec = replace(spec, prefix=prefix, rest=self.terms.conjoin(spec.rest, conj))
        return replace(spec, seen=None)

    def _close_by_contains(self, subschema: Subschema, spec: ir.ArraySpec) -> ir.ArraySpec:
        """Items after the evaluated ones have to satisfy one of the conditions: none may fail them all."""
        if any(len(c) != 1 for c in spec.seen_if):
            return replace(spec, seen=None)
        fails_all: ir.Conj = tuple(c[0].opposite for c in spec.seen_if)
        assert spec.seen is not None
        return replace(spec, seen=None, contains=(*spec.contains, ir.Contains(fails_all, 0, 0, spec.seen)))


def _is_one_of(conj: ir.Conj) -> bool:
    """Whether only a `oneOf` has to hold."""
    schema = as_object(conj[0].subschema.schema) if len(conj) == 1 and conj[0].positive else None
    return schema is not None and ASSERTIONS.intersection(schema) == frozenset({"oneOf"})


def _unseen(sets: ir.TypeSets) -> ir.TypeSets:
    """The sets with nothing evaluated: a schema that fails leaves no annotations."""
    arrays = tuple(replace(spec, seen=0, seen_if=()) for spec in sets.array)
    objects = tuple(replace(spec, seen=NO_STRING) for spec in sets.object)
    return replace(sets, array=arrays, object=objects)
