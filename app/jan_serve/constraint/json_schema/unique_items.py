"""This module finds the arrays of a document whose items must differ, and writes the items that no grammar can tell
apart: each scalar in one spelling, for the executor to compare.

Equal scalars have equal texts, so the executor compares texts; it knows from the automata which beginnings of an
item are left. Arrays and objects are compared when they end. One that is there already has to go on, so only those
are allowed that always may. An automaton over names and items finds the arrays, and the objects whose names may run
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from jan_serve.constraint import charset
from jan_serve.constraint.ast import (
    EMPTY,
    NEVER,
    Expr,
    Literal,
    Terminal,
    choice,
    optional,
    repeat,
    sequence,
    terminal,
)
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.counting import (
    SURROGATES,
    all_words,
    count_words,
    endless_states,
    is_endless,
)
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.json_schema.emit_strings import string_expr
from jan_serve.constraint.json_schema.emitter import Emitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, Conj, ObjectSpec, Terms, TypeSets
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.number_text import number_dfa
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, StringSet
from jan_serve.constraint.json_schema.unlisted_names import has_value, name_classes, names_that_run_out
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import OneSpelling, PlainText
from jan_serve.core.uniqueness import NOWHERE, Automaton, ItemTexts, Location, Uniqueness
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

MAX_EDGES: Final = 20_000
"""Of the automata of one array."""
MAX_ITEMS: Final = 10_000
"""In an array whose items are of a finite set."""


class ItemSet(NamedTuple):
    """The items at one place of an array: strings, numbers, the texts of the others; whether arrays or objects too."""

    words: Dfa
    numbers: Dfa
    literals: tuple[str, ...]
    containers: bool

    def others(self) -> Dfa:
        """The texts of the scalars that are no strings."""
        return automata.unite(self.numbers, automata.from_words(self.literals))

    def is_open(self) -> bool:
        """Whether there is always another one."""
        return self.most() is None

    def most(self) -> int | None:
        """How many there are, or MAX_ITEMS of more; None where there is no end."""
        return None if self.containers else _count(self.words, self.numbers, len(self.literals))


def compared_items(
    emit: Emitter, spec: ArraySpec, hint: str, pointer: str
) -> tuple[Expr, tuple[ItemSet, ...]]:
    """One item or more, and the sets whose items may not repeat. Raises UnsupportedSchema, GrammarTooComplex."""
    conjs = [*spec.prefix]
    if spec.high is None or spec.high > len(conjs):
        conjs.append(spec.rest)
    sets = [emit.expander.expand(conj) for conj in conjs]
    for own in sets:
        if not all(_goes_on_array(emit, array) for array in own.array):
            raise UnsupportedSchema(pointer, "uniqueItems", "of arrays that may not be longer")
        if not all(_goes_on_object(emit, each) for each in own.object):
            raise UnsupportedSchema(pointer, "uniqueItems", "of objects that may have no other properties")
    items = tuple([_item_set(own) for own in sets])
    exprs: list[Expr] = [
        emit.rules.define(f"{hint}-unique", _item(emit, own, item.numbers, hint))
        for own, item in zip(sets, items, strict=True)
    ]
    if not spec.prefix:
        count = items[0].most()
        if count is not None:
            spec = replace(spec, high=count if spec.high is None else min(spec.high, count))
    elif any(_may_run_out(item, at, is_rest=at == len(spec.prefix)) for at, item in enumerate(items)):
        raise UnsupportedSchema(pointer, "uniqueItems", "of items by position, of which few may be left")
    if spec.high is not None and spec.high < max(spec.low, 1):
        return NEVER, items
    return _row(emit, spec, exprs), items


def _row(emit: Emitter, spec: ArraySpec, items: list[Expr]) -> Expr:
    """The items of each position, and then the last ones."""
    listed = max(len(spec.prefix), 1)
    tail: Expr = EMPTY
    if len(items) > len(spec.prefix):
        more = sequence([emit.comma(), items[-1]])
        tail = repeat(more, max(spec.low - listed, 0), None if spec.high is None else spec.high - listed)
    for at in range(listed - 1, 0, -1):
        tail = sequence([emit.comma(), items[at], tail])
        tail = tail if at < spec.low else optional(tail)
    return sequence([items[0], tail])


def _may_run_out(item: ItemSet, at: int, *, is_rest: bool) -> bool:
    """Whether all items of a position may be there before it."""
    count = item.most()
    return count is not None and (is_rest or count <= at)


def _item_set(sets: TypeSets) -> ItemSet:
    return ItemSet(
        strings.string_dfa(sets.string),
        _numbers(sets),
        tuple(_literals(sets)),
        bool(sets.array or sets.object),
    )


def texts_of(arrays: Iterable[tuple[ItemSet, ...]], pointer: str) -> ItemTexts | None:
    """The texts of the items of arrays at one place; None where it does not follow from a text which are left."""
    items = list(dict.fromkeys(item for each in arrays for item in each))
    words, others = items[0].words, items[0].others()
    for item in items[1:]:
        words, others = automata.unite(words, item.words), automata.unite(others, item.others())
    if len(items) > 1 and any(
        _misleads(item.words, words) or _misleads(item.others(), others, after=1) for item in items
    ):
        return None
    return ItemTexts(
        automaton_of(words, pointer),
        automaton_of(others, pointer),
        endless=is_endless(words) and is_endless(others),
        containers=any(item.containers for item in items),
    )


def _misleads(own: Dfa, all_texts: Dfa, *, after: int = 0) -> bool:
    """Whether some beginning of few texts of a set is also one of others, so that these seem to be left. after: the
    length from which on a beginning counts."""
    if not own.accepting:
        return False
    beyond = automata.intersect(all_texts, automata.complement(own))
    endless, live, live_beyond = endless_states(own), own.live_states(), beyond.live_states()
    seen = {(0, 0, 0)}
    todo = list(seen)
    while todo:
        state, other, length = todo.pop()
        if state not in live or other not in live_beyond:
            continue
        if length >= after and state not in endless:
            return True
        spend(1)
        sets = beyond.symbol_sets()
        for symbol, target in enumerate(own.table[state]):
            for beside, end in enumerate(beyond.table[other]):
                if charset.intersect(own.symbol_sets()[symbol], sets[beside]):
                    found = (target, end, min(length + 1, after))
                    if found not in seen:
                        seen.add(found)
                        todo.append(found)
    return False


def _goes_on_array(emit: Emitter, spec: ArraySpec) -> bool:
    """Whether one more item may always follow."""
    if spec.high is not None or spec.contains:
        return False
    if spec in emit.held or spec.unique:
        return _item_set(emit.expander.expand(spec.rest)).is_open()
    return has_value(emit.expander, spec.rest)


def _goes_on_object(emit: Emitter, spec: ObjectSpec) -> bool:
    """Whether one more property may always follow."""
    if spec.high is not None or spec.exists:
        return False
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    return any(
        automata.longest_word(strings.string_dfa(names)) is None and has_value(emit.expander, conj)
        for names, conj in classes
    )


def _item(emit: Emitter, sets: TypeSets, numbers: Dfa, hint: str) -> Expr:
    form = OneSpelling(emit.rules)
    if isinstance(sets.string, strings.AnyString):
        body: Expr = sequence([repeat(form.chars(charset.ANY), 0, None), form.tail])
    else:
        body = string_expr(sets.string, form, emit.rules, hint)
    options = [terminal(sequence([Literal('"'), body]))]
    if numbers.accepting:
        options.append(terminal(dfa_to_expr(numbers, PlainText(), emit.rules, f"{hint}-number")))
    options += [Terminal(Literal(text)) for text in _literals(sets)]
    if sets.array or sets.object:
        options.append(emit.containers(sets, f"{hint}-item"))
    return choice(option for option in options if option != NEVER)


def _literals(sets: TypeSets) -> list[str]:
    booleans = [text for bit, text in ((1, "false"), (2, "true")) if sets.boolean & bit]
    return [*booleans, *(["null"] if sets.null else [])]


def _numbers(sets: TypeSets) -> Dfa:
    """The texts of the numbers, without exponents and needless zeros, except that 1 may be 1.0."""
    found = automata.from_words([])
    for spec in sets.number:
        found = automata.unite(found, number_dfa(spec))
    return automata.intersect(found, _plain_numbers())


@lru_cache(maxsize=1)
def _plain_numbers() -> Dfa:
    return regex_dfa(full_regex(r"0(\.0)?|-?([1-9][0-9]*(\.(0|[0-9]*[1-9]))?|0\.[0-9]*[1-9])"))


def automaton_of(dfa: Dfa, pointer: str) -> Automaton:
    """The words of `dfa`, without states that lead to none. Raises GrammarTooComplex above MAX_EDGES."""
    live = dfa.live_states()
    order = [0, *sorted(live - {0})]
    numbers = {state: number for number, state in enumerate(order)}
    sets = dfa.symbol_sets()
    edges = tuple(
        tuple(
            sorted(
                (low, high, numbers[target])
                for symbol, target in enumerate(dfa.table[state])
                if target in live
                for low, high in charset.subtract(sets[symbol], SURROGATES)
            )
        )
        for state in order
    )
    spend(len(order) * (1 + len(sets)) // 8)
    if sum(map(len, edges)) > MAX_EDGES:
        raise GrammarTooComplex(
            f"the items of uniqueItems, or the names above them, need more than {MAX_EDGES} edges",
            pointer=pointer,
        )
    return Automaton(edges, frozenset(numbers[state] for state in dfa.accepting))


def _count(words: Dfa, numbers: Dfa, literals: int) -> int | None:
    """How many values there are, or MAX_ITEMS of more; None where there is no end."""
    found = literals
    for dfa in (words, numbers):
        if automata.longest_word(dfa) is None:
            return None
        found += count_words(dfa, MAX_ITEMS)
    if found > MAX_ITEMS:
        return MAX_ITEMS
    return found - count_words(numbers, MAX_ITEMS) + len({Fraction(text) for text in all_words(numbers)})


MAX_LOCATIONS: Final = 2_000
_IN_PARTS: Final = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, charset.MAX_CODE_POINT))
"""Characters that a token may hold only a part of."""


def uniqueness_of(expander: Expander, root: Conj, emitter: Emitter) -> Uniqueness:
    """What must be unique in the documents of a schema, whose grammar is written.

    Raises AlsoHeld where another array may be at the location of one whose items must differ: its items have to differ
    too. Raises UnsupportedSchema where another object may be at that of one whose names may run out.
    """
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
        self._missing_names = list(self._counted)
        self._pointer, self._keyword, self._what = "", "patternProperties", "of names that may run out"
        if self._unique:
            items = next(iter(self._unique)).rest
            self._pointer = items[0].subschema.pointer if items else ""
            self._keyword, self._what = "uniqueItems", "of large sets"
        self._texts: list[ItemTexts] = []
        self._names: list[Dfa] = []
        self._numbers: dict[frozenset[Conj], int] = {}
        self._todo: list[frozenset[Conj]] = []

    def _refused(self, reason: str) -> UnsupportedSchema:
        return UnsupportedSchema(self._pointer, self._keyword, f"{self._what}, {reason}")

    def uniqueness(self, root: Conj) -> Uniqueness:
        self._number([root])
        locations: list[Location] = []
        while len(locations) < len(self._todo):
            locations.append(self._location(self._todo[len(locations)]))
        if self._missing or self._missing_names:
            raise self._refused("below alternatives that combine")
        unlisted = tuple(automaton_of(names, self._pointer) for names in self._names)
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
                raise GrammarTooComplex(
                    f"the documents have more than {MAX_LOCATIONS} places that differ, beside {self._keyword}",
                    pointer=self._pointer,
                )
        return number

    def _location(self, conjs: frozenset[Conj]) -> Location:
        sets = [self._expander.expand(conj) for conj in conjs]
        objects = [spec for each in sets for spec in each.object]
        arrays = [spec for each in sets for spec in each.array]
        self._check(objects, arrays)
        names = dict.fromkeys(name for spec in objects for name in (*spec.props, *spec.required))
        lookup = self._expander.algebra.lookup
        classes = [(others, self._number(below)) for others, below in self._classes(objects)]
        alike = len({number for _, number in classes}) == 1
        return Location(
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
        if any(spec.exists for spec in objects) or any(spec.contains for spec in arrays):
            raise self._refused("beside `contains` or a condition on some property")

    def _unique_number(self, arrays: list[ArraySpec]) -> int:
        found = [spec for spec in arrays if spec in self._unique]
        if not found:
            return NOWHERE
        self._missing.difference_update(found)
        others = {
            spec for spec in arrays if spec not in self._unique and (spec.high is None or spec.high > 1)
        }
        if others:
            raise AlsoHeld(frozenset(others))
        texts = texts_of((self._unique[spec] for spec in found), self._pointer)
        if texts is None:
            raise self._refused(f"where another array may be at the same place: {_described(found[-1])}")
        if texts not in self._texts:
            self._texts.append(texts)
        return self._texts.index(texts)

    def _unlisted_number(self, objects: list[ObjectSpec]) -> int:
        """The number of the names that may run out in one of these objects."""
        found = [spec for spec in objects if spec in self._counted]
        if not found:
            return NOWHERE
        self._missing_names = [spec for spec in self._missing_names if spec not in found]
        sets = [names_that_run_out(self._expander, spec) for spec in found]
        names = sets[0]
        assert names is not None
        terms = self._expander.terms
        closed = all(spec in found or _is_closed(terms, spec) for spec in objects)
        if not closed or any(other is None or not _equal(names, other) for other in sets[1:]):
            raise self._refused("where another object may be at the same place")
        listed = {name for spec in objects for name in (*spec.props, *spec.required)}
        if any(_meets(names, name) for name in listed):
            raise self._refused("some of which begin as a listed one")
        for number, known in enumerate(self._names):
            if _equal(known, names):
                return number
        self._names.append(names)
        return len(self._names) - 1


def _described(spec: ArraySpec) -> str:
    conj = next((conj for conj in (*spec.prefix, spec.rest) if conj), None)
    return "one of any items" if conj is None else f"one of items as at {conj[0].subschema.pointer or '/'}"


def _is_closed(terms: Terms, spec: ObjectSpec) -> bool:
    return any(rule.conj == terms.false and rule.names == ANY_STRING for rule in spec.rules)


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
    intersect, complement = automata.intersect, automata.complement
    return a is b or (intersect(a, complement(b)).is_empty() and intersect(b, complement(a)).is_empty())


def _pruned(
    locations: list[Location],
    unique: tuple[ItemTexts, ...],
    unlisted: tuple[Automaton, ...],
    *,
    names_repeat: bool,
) -> Uniqueness:
    """Without the locations below which nothing is compared."""
    users: dict[int, list[int]] = {}
    for number, location in enumerate(locations):
        below = (target for _, target in location.classes)
        for target in (*location.names.values(), location.other, location.items, *below):
            users.setdefault(target, []).append(number)
    todo = [
        number
        for number, location in enumerate(locations)
        if location.unique != NOWHERE or location.unlisted != NOWHERE
    ]
    kept = set(todo)
    while todo:
        for user in users.get(todo.pop(), ()):
            if user not in kept:
                kept.add(user)
                todo.append(user)
    numbers = {old: new for new, old in enumerate(sorted(kept))}
    return Uniqueness(
        tuple(
            Location(
                {name: numbers.get(target, NOWHERE) for name, target in location.names.items()},
                numbers.get(location.other, NOWHERE),
                numbers.get(location.items, NOWHERE),
                location.unique,
                tuple((names, numbers[target]) for names, target in location.classes if target in numbers),
                location.unlisted,
            )
            for location in (locations[old] for old in sorted(kept))
        ),
        unique,
        unlisted,
        names_repeat,
    )
