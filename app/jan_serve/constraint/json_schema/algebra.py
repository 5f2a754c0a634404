"""Intersection and union of the IR: type sets, object specs and array specs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

import msgspec

from jan_serve.constraint.json_schema import ir
from jan_serve.constraint.json_schema.document import Term
from jan_serve.constraint.json_schema.keywords import ASSERTIONS, VALUE_KEYWORDS
from jan_serve.constraint.json_schema.scalars import numbers, strings
from jan_serve.constraint.json_schema.scalars.numbers import ANY_NUMBER, NumberSpec
from jan_serve.constraint.json_schema.scalars.strings import NO_STRING, OneOfStrings
from jan_serve.constraint.limits import MAX_SPECS, spend
from jan_serve.errors import GrammarTooComplex

_FEW_NAMES = 16
_FEW_SPECS = 8
# One operation on type sets costs about this much.
_STEPS = 4


class Algebra:
    """Operations that need to conjoin terms. `is_nothing` decides emptiness of a conjunction, exactly or not at all
    (True only when it is certain); `expand` says what one allows."""

    def __init__(
        self, terms: ir.Terms, is_nothing: Callable[[ir.Conj], bool], expand: Callable[[ir.Conj], ir.TypeSets]
    ) -> None:
        self._terms = terms
        self._is_nothing = is_nothing
        self._expand = expand
        self._met: dict[tuple[ir.Conj, ir.Conj], ir.Conj] = {}

    def intersect(self, a: ir.TypeSets, b: ir.TypeSets) -> ir.TypeSets:
        if a is ir.ANY_VALUE:
            return b
        if b is ir.ANY_VALUE:
            return a
        spend(_STEPS)
        return ir.TypeSets(
            a.null and b.null,
            a.boolean & b.boolean,
            self._numbers(a.number, b.number),
            strings.intersect(a.string, b.string),
            self._arrays(a.array, b.array),
            self._objects(a.object, b.object),
        )

    def unite(self, a: ir.TypeSets, b: ir.TypeSets) -> ir.TypeSets:
        spend(_STEPS)
        return ir.TypeSets(
            a.null or b.null,
            a.boolean | b.boolean,
            _union(a.number, b.number, ANY_NUMBER),
            strings.unite(a.string, b.string),
            _union(a.array, b.array, ir.ANY_ARRAY),
            self._union_objects(a.object, b.object),
        )

    def unite_all(self, sets: Sequence[ir.TypeSets]) -> ir.TypeSets:
        """See `unite` one after the other; many objects are compared at once."""
        result = ir.NO_VALUE
        for each in sets:
            result = self.unite(result, msgspec.structs.replace(each, object=()))
        objects = [each.object for each in sets if each.object]
        found = next((each for each in objects if each is ir.ANY_OBJECT or len(objects) == 1), None)
        if found is None:
            found = _capped(self._absorbed([spec for each in objects for spec in each]))
        return msgspec.structs.replace(result, object=found)

    def discriminators(self, sets: Sequence[ir.TypeSets]) -> list[frozenset[str]] | None:
        """The values that one property, the same in all, may have in each of many sets of objects. Sets that share no
        value have no object in common. None if no property has listed strings in all of them."""
        specs = [spec for each in sets for spec in each.object]
        if any(msgspec.structs.replace(each, object=()) != ir.NO_VALUE for each in sets):
            return None
        if (values := self._discriminators(specs)) is None:
            return None
        left = iter(values)
        return [frozenset[str]().union(*(next(left) for _ in each.object)) for each in sets]

    def _discriminators(self, specs: Sequence[ir.ObjectSpec]) -> list[frozenset[str]] | None:
        if len(specs) <= _FEW_SPECS:
            return None
        for name in specs[0].required:
            spend(1 + len(specs) // 4)
            found: list[frozenset[str]] = []
            for spec in specs:
                strings_of = self._listed(spec.props.get(name, ir.TRUE)) if name in spec.required else None
                if strings_of is None:
                    break
                found.append(strings_of)
            else:
                return found
        return None

    def _listed(self, conj: ir.Conj) -> frozenset[str] | None:
        """The strings that a value is one of."""
        if not conj or not all(_lists_constants(term) for term in conj):
            return None
        sets = self._expand(conj)
        if not isinstance(sets.string, OneOfStrings):
            return None
        only = msgspec.structs.replace(sets, string=NO_STRING) == ir.NO_VALUE
        return frozenset(sets.string.values) if only else None

    def _numbers(self, a: tuple[NumberSpec, ...], b: tuple[NumberSpec, ...]) -> tuple[NumberSpec, ...]:
        if a is ANY_NUMBER:
            return b
        if b is ANY_NUMBER:
            return a
        spend(sum(1 + len(x.excluded) // 8 for x in a) * sum(1 + len(y.excluded) // 8 for y in b))
        found = dict.fromkeys(s for x in a for y in b if (s := numbers.intersect(x, y)) is not None)
        return _capped(tuple(found))

    def _arrays(self, a: tuple[ir.ArraySpec, ...], b: tuple[ir.ArraySpec, ...]) -> tuple[ir.ArraySpec, ...]:
        if a is ir.ANY_ARRAY:
            return b
        if b is ir.ANY_ARRAY:
            return a
        found = [self._array(x, y) for x in a for y in b]
        if len(found) > 1:
            found = [spec for spec in found if not self.is_empty_array(spec)]
        return _capped(tuple(dict.fromkeys(found)))

    def _array(self, a: ir.ArraySpec, b: ir.ArraySpec) -> ir.ArraySpec:
        spend(2 + len(a.prefix) + len(b.prefix))
        conjoin = self._terms.conjoin
        prefix = tuple(
            conjoin(a.rest if x is None else x, b.rest if y is None else y)
            for x, y in zip_longest(a.prefix, b.prefix)
        )
        return ir.ArraySpec(
            prefix,
            conjoin(a.rest, b.rest),
            max(a.low, b.low),
            _least(a.high, b.high),
            tuple(dict.fromkeys(a.contains + b.contains)),
            a.unique or b.unique,
            None if a.seen is None or b.seen is None else max(a.seen, b.seen),
            tuple(dict.fromkeys(a.seen_if + b.seen_if)),
        )

    def trimmed(self, spec: ir.ArraySpec) -> ir.ArraySpec:
        """The spec with `high` lowered to the first place where no item is possible."""
        false = self._terms.false
        limit = spec.prefix.index(false) if false in spec.prefix else None
        if limit is None and self._is_nothing(spec.rest):
            limit = len(spec.prefix)
        high = _least(spec.high, limit)
        return msgspec.structs.replace(spec, high=high, prefix=spec.prefix[:high])

    def is_empty_array(self, spec: ir.ArraySpec) -> bool:
        """Whether certainly no array satisfies the spec."""
        if spec.high is not None and spec.high < spec.low:
            return True
        if any(self._is_nothing(spec.item(index)) for index in range(min(spec.low, len(spec.prefix) + 1))):
            return True
        return any(
            c.low > 0
            and (self._is_nothing(c.conj) or (spec.high is not None and spec.high < c.low + c.start))
            for c in spec.contains
        )

    def _objects(
        self, a: tuple[ir.ObjectSpec, ...], b: tuple[ir.ObjectSpec, ...]
    ) -> tuple[ir.ObjectSpec, ...]:
        if a is ir.ANY_OBJECT:
            return b
        if b is ir.ANY_OBJECT:
            return a
        found: list[ir.ObjectSpec] = []
        for x in a:
            if len(b) > 1 and any(self._is_within(x, y) for y in b):
                found.append(x)
            else:
                found += [
                    settled
                    for y in b
                    if (spec := self._object(x, y)) is not None
                    for settled in self._settled(spec)
                ]
        if len(found) > 1:
            found = [spec for spec in found if not self.is_empty_object(spec)]
        return _capped(self._absorbed(found))

    def _settled(self, spec: ir.ObjectSpec) -> list[ir.ObjectSpec]:
        """The spec, by which property satisfies each condition that only a few names can."""
        done = [msgspec.structs.replace(spec, exists=())]
        for exists in spec.exists:
            names = exists.names.values if isinstance(exists.names, OneOfStrings) else ()
            if self._extras_fail(spec, exists) or 0 < len(names) <= _FEW_NAMES:
                settled = [found for own in done for found in self.by_property(own, exists, names)]
                done = list(self._absorbed(settled))
            else:
                done = [msgspec.structs.replace(own, exists=(*own.exists, exists)) for own in done]
        return done

    def by_property(
        self, spec: ir.ObjectSpec, exists: ir.NameRule, names: tuple[str, ...] = ()
    ) -> Iterator[ir.ObjectSpec]:
        """The spec with each property that can satisfy a condition: a listed one, or one of these names."""
        for name in dict.fromkeys([*spec.props, *spec.required, *names]):
            if strings.contains(exists.names, name):
                conj = self._meet(self.lookup(spec, name), exists.conj)
                if not self._is_nothing(conj):
                    required = spec.required if name in spec.required else (*spec.required, name)
                    yield msgspec.structs.replace(spec, props={**spec.props, name: conj}, required=required)

    def _absorbed(self, specs: list[ir.ObjectSpec]) -> tuple[ir.ObjectSpec, ...]:
        """The specs without those that lie within another one."""
        told = self._told_apart(specs)
        uses = Counter(term for conj in told for term in conj)
        kept: dict[int, ir.ObjectSpec] = {}
        untold: list[int] = []
        by_term: dict[Term, list[int]] = {}
        by_rarest: dict[Term, list[int]] = {}
        for number, (spec, conj) in enumerate(zip(specs, told, strict=True)):
            above = below = kept.keys()
            if conj:
                rarest = min(conj, key=uses.__getitem__)
                above = [*untold, *(other for term in conj for other in by_rarest.get(term, ()))]
                below = [*untold, *by_term.get(rarest, ())]
                for term in conj:
                    by_term.setdefault(term, []).append(number)
                by_rarest.setdefault(rarest, []).append(number)
            else:
                untold.append(number)
            if not any(other in kept and self._is_within(spec, kept[other]) for other in above):
                for other in [other for other in below if other in kept]:
                    if self._is_within(kept[other], spec):
                        del kept[other]
                kept[number] = spec
        return tuple(kept.values())

    def _told_apart(self, specs: list[ir.ObjectSpec]) -> list[ir.Conj]:
        """What each of many specs says of the property that tells most of them apart: one that lists it lies within
        another only if it says all that the other does. TRUE for those that do not list it, or forbid it."""
        if len(specs) <= _FEW_SPECS:
            return [ir.TRUE] * len(specs)
        conjs: dict[str, set[ir.Conj]] = {}
        for spec in specs:
            spend(1 + len(spec.props) // 8)
            for name, conj in spec.props.items():
                conjs.setdefault(name, set()).add(conj)
        name = max(conjs, key=lambda name: len(conjs[name]), default="")
        told = (spec.props.get(name, ir.TRUE) for spec in specs)
        return [ir.TRUE if conj == self._terms.false else conj for conj in told]

    def _is_within(self, a: ir.ObjectSpec, b: ir.ObjectSpec) -> bool:
        """Whether every object of `a` is certainly one of `b`, with as much of it evaluated."""
        spend(1 + len(b.required) // 8)
        if a.seen != b.seen or (b.required and not set(a.required).issuperset(b.required)):
            return False
        if b.low > max(a.low, len(a.required)):
            return False
        if b.high is not None and (a.high is None or a.high > b.high):
            return False
        if not all(rule in a.rules for rule in b.rules) or not all(e in a.exists for e in b.exists):
            return False
        spend(1 + (len(a.props) + len(b.props)) // 8)
        for name, conj in b.props.items():
            own = a.props.get(name)
            if own is not conj and not self._is_narrower(self.lookup(a, name) if own is None else own, conj):
                return False
        return all(
            name in b.props or self._is_narrower(conj, self.lookup(b, name)) for name, conj in a.props.items()
        )

    def _is_narrower(self, a: ir.Conj, b: ir.Conj) -> bool:
        return a == b or a == self._terms.false or all(term in a for term in b)

    def _meet(self, a: ir.Conj, b: ir.Conj) -> ir.Conj:
        """Both; without what adds nothing where only constants are listed, as in properties that tell alternatives
        apart."""
        if not a or not b or a == b:
            return a or b
        known = self._met.get((a, b))
        if known is None:
            known = self._terms.conjoin(a, b)
            if known not in (a, b, self._terms.false) and all(_lists_constants(term) for term in known):
                sets = self._expand(known)
                known = (
                    self._terms.false
                    if sets == ir.NO_VALUE
                    else next((conj for conj in (a, b) if sets == self._expand(conj)), known)
                )
            self._met[a, b] = known
        return known

    def _object(self, a: ir.ObjectSpec, b: ir.ObjectSpec) -> ir.ObjectSpec | None:
        spend(2 + len(a.props) + len(b.props))
        conjoin = self._meet
        props: dict[str, ir.Conj] = {}
        for name, conj in a.props.items():
            other = b.props.get(name)
            props[name] = conjoin(conj, self.lookup(b, name) if other is None else other)
        for name, conj in b.props.items():
            if name not in props:
                props[name] = conjoin(self.lookup(a, name), conj)
        required = tuple(dict.fromkeys(a.required + b.required)) if b.required else a.required
        if any(props.get(name) == self._terms.false for name in required):
            return None
        low, high = max(a.low, b.low), _least(a.high, b.high)
        if high is not None and high < max(low, len(required)):
            return None
        return ir.ObjectSpec(
            props,
            tuple(dict.fromkeys(a.rules + b.rules)),
            required,
            low,
            high,
            tuple(dict.fromkeys(a.exists + b.exists)),
            strings.unite(a.seen, b.seen),
        )

    def _union_objects(
        self, a: tuple[ir.ObjectSpec, ...], b: tuple[ir.ObjectSpec, ...]
    ) -> tuple[ir.ObjectSpec, ...]:
        if a is ir.ANY_OBJECT or b is ir.ANY_OBJECT:
            return ir.ANY_OBJECT
        # Each of them is absorbed.
        own = [spec for spec in b if not any(self._is_within(spec, other) for other in a)]
        kept = [spec for spec in a if not any(self._is_within(spec, other) for other in own)]
        return _capped((*kept, *own))

    def lookup(self, spec: ir.ObjectSpec, name: str) -> ir.Conj:
        """All that applies to the value of one property."""
        known = spec.props.get(name)
        if known is not None:
            return known
        result = ir.TRUE
        spend(len(spec.rules))
        for rule in spec.rules:
            if strings.contains(rule.names, name):
                result = self._terms.conjoin(result, rule.conj)
        return result

    def add_rule(self, spec: ir.ObjectSpec, rule: ir.NameRule) -> ir.ObjectSpec:
        """The spec with one more rule, which listed properties obey too."""
        spend(len(spec.props))
        props = {
            name: self._terms.conjoin(conj, rule.conj) if strings.contains(rule.names, name) else conj
            for name, conj in spec.props.items()
        }
        return msgspec.structs.replace(spec, props=props, rules=(*spec.rules, rule))

    def is_empty_object(self, spec: ir.ObjectSpec) -> bool:
        """Whether certainly no object satisfies the spec."""
        if spec.high is not None and spec.high < max(spec.low, len(spec.required)):
            return True
        if any(self._is_nothing(self.lookup(spec, name)) for name in spec.required):
            return True
        return any(
            all(
                conj == self._terms.false
                for name, conj in spec.props.items()
                if strings.contains(e.names, name)
            )
            and self._extras_fail(spec, e)
            for e in spec.exists
        )

    def _extras_fail(self, spec: ir.ObjectSpec, exists: ir.NameRule) -> bool:
        """Whether no unlisted property can be the one that `exists` asks for."""
        return any(
            rule.conj == self._terms.false and rule.names in (strings.ANY_STRING, exists.names)
            for rule in spec.rules
        ) or self._is_nothing(exists.conj)


S = TypeVar("S", NumberSpec, ir.ArraySpec, ir.ObjectSpec)
T = TypeVar("T", NumberSpec, ir.ArraySpec)


def _union(a: tuple[T, ...], b: tuple[T, ...], everything: tuple[T, ...]) -> tuple[T, ...]:
    if a is everything or b is everything:
        return everything
    if not a or not b:
        return a or b
    return _capped(tuple(dict.fromkeys(a + b)))


def _least(a: int | None, b: int | None) -> int | None:
    """The lesser of two bounds, of which None is none."""
    return a if b is None else b if a is None else min(a, b)


def _lists_constants(term: Term) -> bool:
    """Whether the schema of a term says no more than which constants and types there are."""
    schema = term.subschema.schema
    return not isinstance(schema, bool) and ASSERTIONS.intersection(schema) <= VALUE_KEYWORDS


def _capped(specs: tuple[S, ...]) -> tuple[S, ...]:
    if len(specs) > MAX_SPECS:
        raise GrammarTooComplex(f"the alternatives of one value multiply to more than {MAX_SPECS}")
    return specs
