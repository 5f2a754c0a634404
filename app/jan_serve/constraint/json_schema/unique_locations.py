"""This module finds the arrays of a document whose items must differ, and the objects whose names may run out: an
automaton over names and items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from jan_serve.constraint import charset
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa, endless_states
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, Conj, ObjectSpec
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, StringSet
from jan_serve.constraint.json_schema.unique_items import automaton_of, is_within, kinds_of, texts_of
from jan_serve.constraint.json_schema.unlisted_names import name_classes
from jan_serve.constraint.limits import spend
from jan_serve.constraint.rules import users_of
from jan_serve.core.uniqueness import NOWHERE, Automaton, ItemTexts, Location, Uniqueness
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

if TYPE_CHECKING:
    from jan_serve.constraint.json_schema.translate import Emitter

MAX_LOCATIONS: Final = 2_000
_IN_PARTS: Final = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, charset.MAX_CODE_POINT))
"""Characters that a token may hold only a part of."""


def uniqueness_of(expander: Expander, root: Conj, emitter: Emitter) -> Uniqueness:
    """What must be unique in the documents of a schema, whose grammar is written. Raises AlsoHeld where another array
    may be at the location of one whose items must differ: its items have to differ too. Raises UnsupportedSchema where
    another object may be at that of one whose names may run out."""
    if emitter.unique or emitter.counted_names:
        return _Locations(expander, emitter).uniqueness(root)
    return Uniqueness(names_repeat=emitter.names_repeat)


class AlsoHeld(Exception):
    """Arrays that may stand where the items of another one must differ: nobody knows yet which of them is written."""

    def __init__(self, specs: frozenset[ArraySpec]) -> None:
        super().__init__()
        self.specs = specs


class _Locations:
    def __init__(self, expander: Expander, emitter: Emitter) -> None:
        self._expander = expander
        self._unique = emitter.unique
        self._held = emitter.held
        self._counted = emitter.counted_names
        self._names_repeat = emitter.names_repeat
        self._missing = set(self._unique)
        self._missing_names = [spec for spec, _ in self._counted]
        self._keyword, self._what = "patternProperties", "of names that may run out"
        if self._unique:
            self._keyword, self._what = "uniqueItems", "of large sets"
        self._texts: list[ItemTexts] = []
        self._names: list[Dfa] = []
        self._numbers: dict[frozenset[Conj], int] = {}
        self._todo: list[frozenset[Conj]] = []

    def _refused(self, reason: str) -> UnsupportedSchema:
        return UnsupportedSchema("", self._keyword, f"{self._what}, {reason}")

    def uniqueness(self, root: Conj) -> Uniqueness:
        self._number([root])
        locations: list[Location] = []
        while len(locations) < len(self._todo):
            locations.append(self._location(self._todo[len(locations)]))
        if self._missing or self._missing_names:
            raise self._refused("below alternatives that combine")
        unlisted = tuple(automaton_of(names) for names in self._names)
        return _pruned(locations, tuple(self._texts), unlisted, names_repeat=self._names_repeat)

    def _number(self, of: Iterable[Conj]) -> int:
        """The location of values that satisfy one of the conjunctions, one for each alternative."""
        conjs = frozenset(conj for conj in of if not self._expander.is_nothing(conj))
        if not any(conjs):  # anything, or nothing at all
            return NOWHERE
        number = self._numbers.get(conjs)
        if number is None:
            number = self._numbers[conjs] = len(self._numbers)
            self._todo.append(conjs)
            spend(1 + len(conjs))
            if number > MAX_LOCATIONS:
                reason = (
                    f"the documents have more than {MAX_LOCATIONS} places that differ, beside {self._keyword}"
                )
                raise GrammarTooComplex(reason)
        return number

    def _location(self, conjs: frozenset[Conj]) -> Location:
        sets = [self._expander.expand(conj) for conj in conjs]
        objects = [spec for each in sets for spec in each.object]
        arrays = [spec for each in sets for spec in each.array]
        self._check(objects, arrays)
        names = dict.fromkeys(name for spec in objects for name in (*spec.props, *spec.required))
        lookup = self._expander.algebra.lookup
        classes = [(others, self._number(below)) for others, below in self._classes(objects)]
        other = NOWHERE
        if len({number for _, number in classes}) == 1:
            (_, other), classes = classes[0], []
        return Location(
            {name: self._number(lookup(spec, name) for spec in objects) for name in names},
            other,
            self._number(conj for spec in arrays for conj in spec.items()),
            self._unique_number(arrays),
            tuple((automaton_of(strings.string_dfa(own)), at) for own, at in classes if at != NOWHERE),
            self._unlisted_number(objects),
        )

    def _classes(self, objects: list[ObjectSpec]) -> list[tuple[StringSet, list[Conj]]]:
        """Names that no spec lists, by what their values satisfy in each spec that allows them."""
        terms = self._expander.terms
        classes: list[tuple[StringSet, list[Conj]]] = [(ANY_STRING, [])]
        for spec in objects:
            classes = [
                (names, [*conjs, conj] if conj != terms.false else conjs)
                for before, conjs in classes
                for names, conj in name_classes(terms, spec.rules, before, TRUE)
            ]
            spend(len(classes))
        return classes if objects else []

    def _check(self, objects: list[ObjectSpec], arrays: list[ArraySpec]) -> None:
        counted = [self._expander.expand(conj) for spec in arrays if spec.contains for conj in spec.items()]
        if any(spec.exists for spec in objects) or any(sets.array or sets.object for sets in counted):
            raise self._refused("beside `contains` or a condition on some property")

    def _unique_number(self, arrays: list[ArraySpec]) -> int:
        found = [spec for spec in arrays if spec in self._unique]
        if not found:
            return NOWHERE
        self._missing.difference_update(found)
        several = (
            spec for spec in arrays if spec not in self._unique and (spec.high is None or spec.high > 1)
        )
        if others := frozenset(spec for spec in several if not self._is_apart(spec, found)):
            raise AlsoHeld(others)
        wider: list[ArraySpec] = []
        for spec in found:  # where the items of a narrower array differ, a wider one may go on
            if not any(self._covers(other, spec) for other in wider):
                wider = [*(other for other in wider if not self._covers(spec, other)), spec]
        texts = texts_of(self._unique[spec] for spec in wider)
        if texts is None:
            raise self._refused(f"where another array may be at the same place: {_described(wider[-1])}")
        if texts not in self._texts:
            self._texts.append(texts)
        return self._texts.index(texts)

    def _is_apart(self, other: ArraySpec, found: list[ArraySpec]) -> bool:
        """Whether the items of an array are of other kinds than those that must differ: these alone are compared."""
        conjs = other.prefix if other.high == len(other.prefix) else other.items()
        own = kinds_of(map(self._expander.expand, conjs))
        return not any(own & item.kinds() for spec in found for item in self._unique[spec])

    def _covers(self, wide: ArraySpec, narrow: ArraySpec) -> bool:
        """Whether each array of different items that one allows is certainly one of the other."""
        if any(spec.prefix or spec.contains for spec in (wide, narrow)) or wide.low > narrow.low:
            return False
        if wide.high is not None and (narrow.high is None or wide.high < narrow.high):
            return False
        return is_within(self._unique[narrow][0], self._unique[wide][0])

    def _unlisted_number(self, objects: list[ObjectSpec]) -> int:
        """The number of the names that may run out in one of these objects."""
        found = [own for own in self._counted if own[0] in objects]
        if not found:
            return NOWHERE
        self._missing_names = [spec for spec in self._missing_names if spec not in objects]
        fitting = (
            names
            for spec, names in found
            if all(self._fits(other, spec, names) for other in objects if other != spec)
        )
        if (names := next(fitting, None)) is None:
            raise self._refused("where another object may be at the same place")
        for number, known in enumerate(self._names):
            if _equal(known, names):
                return number
        self._names.append(names)
        return len(self._names) - 1

    def _fits(self, other: ObjectSpec, wide: ObjectSpec, names: Dfa) -> bool:
        """Whether the names of one object say what is left of those of another one too."""
        own = next((own for spec, own in self._counted if spec == other), None)
        if own is not None and _equal(own, names):
            return True
        false = self._expander.terms.false
        if not any(rule.conj == false and rule.names == ANY_STRING for rule in other.rules):
            return False
        lookup = self._expander.algebra.lookup
        conjs = {name: lookup(other, name) for name in (*other.props, *other.required)}
        listed = [name for name, conj in conjs.items() if not self._expander.is_nothing(conj)]
        if own is None:  # the grammar knows which of its names are left
            return all(names.matches(name) or not _meets(names, name) for name in listed)
        # Whatever is written of the other one is also the beginning of a wider one.
        return wide.high is None and all(conjs[name] == lookup(wide, name) for name in listed)


def _described(spec: ArraySpec) -> str:
    conj = next((conj for conj in spec.items() if conj), None)
    return "one of any items" if conj is None else f"one of items as at {conj[0].subschema.pointer or '/'}"


def _meets(names: Dfa, listed: str) -> bool:
    """Whether the executor could take the beginning of a listed name for one of `names`, of which it may leave none."""
    live, endless, sets = names.live_states(), endless_states(names), names.symbol_sets()
    state = 0
    for position, c in enumerate(listed):
        if position and state not in endless:
            return True
        if charset.contains(_IN_PARTS, ord(c)) and any(
            target in live and target not in endless and charset.intersect(sets[symbol], _IN_PARTS)
            for symbol, target in enumerate(names.table[state])
        ):
            return True
        state = names.step(state, c)
        if state not in live:
            return False
    return state not in endless


def _equal(a: Dfa, b: Dfa) -> bool:
    return automata.is_within(a, b) and automata.is_within(b, a)


def _pruned(
    locations: list[Location],
    unique: tuple[ItemTexts, ...],
    unlisted: tuple[Automaton, ...],
    *,
    names_repeat: bool,
) -> Uniqueness:
    """The uniqueness without the locations below which nothing is compared."""
    users = users_of(
        {
            number: [*own.names.values(), own.other, own.items, *(target for _, target in own.classes)]
            for number, own in enumerate(locations)
        }
    )
    compared = (at for at, own in enumerate(locations) if own.unique != NOWHERE or own.unlisted != NOWHERE)
    kept = automata.reached(compared, lambda number: users.get(number, ()))
    numbers = {old: new for new, old in enumerate(sorted(kept))}
    renumbered = tuple(
        replace(
            location,
            names={name: numbers.get(target, NOWHERE) for name, target in location.names.items()},
            other=numbers.get(location.other, NOWHERE),
            items=numbers.get(location.items, NOWHERE),
            classes=tuple(
                (names, numbers[target]) for names, target in location.classes if target in numbers
            ),
        )
        for location in map(locations.__getitem__, numbers)
    )
    return Uniqueness(renumbered, unique, unlisted, names_repeat)
