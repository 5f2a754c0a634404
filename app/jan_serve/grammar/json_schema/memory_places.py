"""Where in a document the arrays are whose items the executor remembers, as an automaton over names and items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from jan_serve.core.text_memory import NOWHERE, ItemTexts, Place, TextMemory
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema
from jan_serve.grammar.json_schema import strings
from jan_serve.grammar.json_schema.emit_objects import name_classes
from jan_serve.grammar.json_schema.ir import TRUE, ArraySpec, Conj, ObjectSpec
from jan_serve.grammar.json_schema.strings import ANY_STRING, StringSet
from jan_serve.grammar.json_schema.unique_items import automaton_of
from jan_serve.grammar.limits import spend

if TYPE_CHECKING:
    from jan_serve.grammar.json_schema.expand import Expander

MAX_PLACES: Final = 2_000


def text_memory(expander: Expander, root: Conj, unique: Mapping[ArraySpec, ItemTexts]) -> TextMemory | None:
    """The memory of a document. unique: the arrays that are remembered.

    Raises UnsupportedSchema where another array may be at the place of a remembered one.
    """
    return _Places(expander, unique).memory(root) if unique else None


class _Places:
    def __init__(self, expander: Expander, unique: Mapping[ArraySpec, ItemTexts]) -> None:
        self._expander = expander
        self._unique = unique
        items = next(iter(unique)).rest
        self._pointer = items[0].node.pointer if items else ""
        self._missing = set(unique)
        self._texts: list[ItemTexts] = []
        self._numbers: dict[frozenset[Conj], int] = {}
        self._todo: list[frozenset[Conj]] = []

    def memory(self, root: Conj) -> TextMemory:
        self._number([root])
        places: list[Place] = []
        while len(places) < len(self._todo):
            places.append(self._place(self._todo[len(places)]))
        if self._missing:
            raise UnsupportedSchema(
                self._pointer, "uniqueItems", "of large sets, below alternatives that combine"
            )
        return _pruned(places, tuple(self._texts))

    def _number(self, of: Iterable[Conj]) -> int:
        """The place of values that satisfy one of the conjunctions, one for each alternative."""
        conjs = frozenset(conj for conj in of if not self._expander.is_nothing(conj))
        if not any(conjs):  # anything, or nothing at all
            return NOWHERE
        number = self._numbers.get(conjs)
        if number is None:
            number = self._numbers[conjs] = len(self._numbers)
            self._todo.append(conjs)
            spend(1 + len(conjs))
            if number > MAX_PLACES:
                raise GrammarTooComplex(
                    f"uniqueItems: the documents have more than {MAX_PLACES} places that differ"
                )
        return number

    def _place(self, conjs: frozenset[Conj]) -> Place:
        sets = [self._expander.expand(conj) for conj in conjs]
        objects = [spec for each in sets for spec in each.object]
        arrays = [spec for each in sets for spec in each.array]
        self._check(objects, arrays)
        names = dict.fromkeys(name for spec in objects for name in (*spec.props, *spec.required))
        lookup = self._expander.algebra.lookup
        classes = [(others, self._number(below)) for others, below in self._classes(objects)]
        alike = len({number for _, number in classes}) == 1
        return Place(
            {name: self._number(lookup(spec, name) for spec in objects) for name in names},
            classes[0][1] if alike else NOWHERE,
            self._number(conj for spec in arrays for conj in (*spec.prefix, spec.rest)),
            self._unique_number(arrays),
            ()
            if alike
            else tuple(
                (automaton_of(strings.string_dfa(others), self._pointer), number)
                for others, number in classes
                if number != NOWHERE
            ),
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
        if any(spec.exists for spec in objects) or any(spec.contains for spec in arrays):
            raise UnsupportedSchema(
                self._pointer,
                "uniqueItems",
                "of large sets, beside `contains` or a condition on some property",
            )

    def _unique_number(self, arrays: list[ArraySpec]) -> int:
        found = [spec for spec in arrays if spec in self._unique]
        if not found:
            return NOWHERE
        self._missing.difference_update(found)
        texts = self._unique[found[0]]
        if any(self._unique.get(spec) != texts for spec in arrays if spec.high is None or spec.high > 1):
            raise UnsupportedSchema(
                self._pointer, "uniqueItems", "of large sets, where another array may be at the same place"
            )
        if texts not in self._texts:
            self._texts.append(texts)
        return self._texts.index(texts)


def _pruned(places: list[Place], unique: tuple[ItemTexts, ...]) -> TextMemory:
    """Without the places below which nothing is remembered."""
    users: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        below = (target for _, target in place.classes)
        for target in (*place.names.values(), place.other, place.items, *below):
            users.setdefault(target, []).append(number)
    todo = [number for number, place in enumerate(places) if place.unique != NOWHERE]
    kept = set(todo)
    while todo:
        for user in users.get(todo.pop(), ()):
            if user not in kept:
                kept.add(user)
                todo.append(user)
    numbers = {old: new for new, old in enumerate(sorted(kept))}
    return TextMemory(
        tuple(
            Place(
                {name: numbers.get(target, NOWHERE) for name, target in place.names.items()},
                numbers.get(place.other, NOWHERE),
                numbers.get(place.items, NOWHERE),
                place.unique,
                tuple((names, numbers[target]) for names, target in place.classes if target in numbers),
            )
            for place in (places[old] for old in sorted(kept))
        ),
        unique,
    )
