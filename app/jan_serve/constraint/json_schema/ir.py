"""The typed IR: the values that a schema allows, split by JSON type and written as unions of conjunctive specs. A
`Conj` is a set of terms that all apply to one place (a subschema must hold, or must fail). It is the lazy unit: specs
name their parts by `Conj`, which is expanded only when a rule for it is emitted, so recursion costs nothing and the
number of distinct parts is finite."""

from __future__ import annotations

import json
from typing import TypeAlias

import msgspec

from jan_serve.constraint.json_schema.document import Document, Subschema, Term, as_object
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.json_schema.scalars.numbers import ANY_NUMBER, NumberSpec
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, NO_STRING, StringSet
from jan_serve.constraint.limits import spend
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

Conj: TypeAlias = tuple[Term, ...]
"""Terms that all apply; empty means anything is allowed. Order is kept: it gives the order of properties."""

TRUE: Conj = ()


class placed:
    """A refusal inside the block names the place of the conjunction, unless it names one already."""

    __slots__ = ("_conj",)

    def __init__(self, conj: Conj) -> None:
        self._conj = conj

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, GrammarTooComplex | UnsupportedSchema):
            error.place(self._conj[0].subschema.pointer if self._conj else "")


NO_BOOLEAN, FALSE_ONLY, TRUE_ONLY, ANY_BOOLEAN = 0, 1, 2, 3


class NameRule(msgspec.Struct, frozen=True):
    """Properties whose name is in `names`, and that `ObjectSpec.props` does not list, satisfy `conj`."""

    names: StringSet
    conj: Conj


class ObjectSpec(msgspec.Struct, frozen=True):
    """Objects that satisfy all parts. `props` holds, per listed name, everything that applies to it. `exists` asks for
    at least one property with such a name and value. `seen` is the set of names that `unevaluatedProperties` around
    this spec no longer covers."""

    props: dict[str, Conj] = msgspec.field(default_factory=dict[str, Conj])
    rules: tuple[NameRule, ...] = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    exists: tuple[NameRule, ...] = ()
    seen: StringSet = NO_STRING


class Contains(msgspec.Struct, frozen=True):
    """low..high of the items from index `start` on satisfy `conj`."""

    conj: Conj
    low: int
    high: int | None
    start: int = 0


class ArraySpec(msgspec.Struct, frozen=True):
    """Arrays whose first items satisfy `prefix` one by one, and all others `rest`. `seen` is the number of leading
    items that `unevaluatedItems` around this spec no longer covers (None: all), `seen_if` conditions that also free an
    item from it."""

    prefix: tuple[Conj, ...] = ()
    rest: Conj = TRUE
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    seen: int | None = 0
    seen_if: tuple[Conj, ...] = ()

    def item(self, index: int) -> Conj:
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def items(self) -> tuple[Conj, ...]:
        return (*self.prefix, self.rest)


class TypeSets(msgspec.Struct, frozen=True):
    """Allowed values, per JSON type. Numbers, arrays and objects are unions of specs; an empty union is nothing."""

    null: bool
    boolean: int
    number: tuple[NumberSpec, ...]
    string: StringSet
    array: tuple[ArraySpec, ...]
    object: tuple[ObjectSpec, ...]

    def is_nothing(self) -> bool:
        """Whether every type is visibly empty; parts are not expanded."""
        return not (
            self.null or self.boolean or self.number or self.array or self.object or self.string != NO_STRING
        )


ANY_ARRAY = (ArraySpec(),)
ANY_OBJECT = (ObjectSpec(),)
ANY_VALUE = TypeSets(True, ANY_BOOLEAN, ANY_NUMBER, ANY_STRING, ANY_ARRAY, ANY_OBJECT)
NO_VALUE = TypeSets(False, NO_BOOLEAN, (), NO_STRING, (), ())


class Terms:
    """Makes conjunctions of one document. All results are canonical: trivial terms are gone, references followed."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.false: Conj = (document.false.positive,)
        self._targets: dict[int, Subschema] = {}

    def positive(self, subschema: Subschema) -> Conj:
        """The conjunction that says that `subschema` holds: at most one term."""
        target = self._targets.get(id(subschema))
        if target is None:
            target = self._targets[id(subschema)] = self._target(subschema)
        if target.schema is False:
            return self.false
        return TRUE if target.is_trivial() else (target.positive,)

    def _target(self, subschema: Subschema) -> Subschema:
        """A schema that is only a `$ref` stands for its target."""
        target, visited = subschema, set[int]()
        while (schema := as_object(target.schema)) and ASSERTIONS.intersection(schema) == frozenset({"$ref"}):
            if id(target) in visited:
                raise UnsupportedSchema(subschema.pointer, "$ref", "the reference leads back to itself")
            visited.add(id(target))
            target = self.document.resolve(target, "$ref")
        return target

    def negative(self, subschema: Subschema) -> Conj:
        """The conjunction that says that `subschema` fails."""
        return self.negated(self.positive(subschema))

    def negated(self, conj: Conj) -> Conj:
        """What fails a conjunction of at most one term."""
        if conj in (TRUE, self.false):
            return TRUE if conj else self.false
        assert len(conj) == 1
        return (conj[0].opposite,)

    def conjoin(self, a: Conj, b: Conj) -> Conj:
        """Both; the false conjunction where one visibly contradicts the other."""
        if not b or a == b:
            return a
        if not a:
            return b
        if a == self.false or b == self.false:
            return self.false
        spend(1 + len(a) * len(b) // 4)
        result = list(a)
        for term in b:
            if term in result:
                continue
            if any(self._contradict(term, other) for other in result):
                return self.false
            result.append(term)
        return tuple(result)

    @staticmethod
    def _contradict(a: Term, b: Term) -> bool:
        if a.positive == b.positive:
            return False
        here, there = a.subschema, b.subschema
        if here is there:
            return True
        if (here.base, here.scope, here.schema) != (there.base, there.scope, there.schema):
            return False
        # Python's equality alone takes false for 0 and 1 for true.
        return json.dumps(here.schema, sort_keys=True) == json.dumps(there.schema, sort_keys=True)
