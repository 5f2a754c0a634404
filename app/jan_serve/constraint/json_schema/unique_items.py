"""This module writes the items that must differ and that no grammar can tell apart: each scalar in one spelling, for
the executor to compare.

Equal scalars have equal texts, so the executor compares texts; it knows from the automata which beginnings of an
item are left. Arrays and objects are compared when they end. One that is there already has to go on, so only those
are allowed that always may. A closed object ends with a member of endlessly many values, which is compared as an item
is: with those of the objects that are equal otherwise.
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
from jan_serve.constraint.json_schema.emit_objects import Field, Shape, listed_members
from jan_serve.constraint.json_schema.emit_strings import string_expr
from jan_serve.constraint.json_schema.emitter import Emitter
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.number_text import number_dfa
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING
from jan_serve.constraint.json_schema.unlisted_names import has_value, name_classes
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import OneSpelling, PlainText
from jan_serve.core.uniqueness import Automaton, ItemTexts, LastTexts
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

MAX_EDGES: Final = 20_000
"""Of the automata of one array."""
MAX_ITEMS: Final = 10_000
"""In an array whose items are of a finite set."""


class LastMember(NamedTuple):
    name: str
    values: ItemSet


class ItemSet(NamedTuple):
    """The items at one place of an array: strings, numbers, the texts of the others; whether arrays or objects too.
    last: the member that objects of one closed kind end with, and its values."""

    words: Dfa
    numbers: Dfa
    literals: tuple[str, ...]
    containers: bool
    last: LastMember | None = None

    def others(self) -> Dfa:
        """The texts of the scalars that are no strings."""
        return automata.unite(self.numbers, automata.from_words(self.literals))

    def is_open(self) -> bool:
        """Whether there is always another one."""
        return self.most() is None

    def most(self) -> int | None:
        """How many there are, or MAX_ITEMS of more; None where there is no end."""
        if self.containers:
            return None if self.last is None else self.last.values.most()
        return _count(self.words, self.numbers, len(self.literals))


def compared_items(emit: Emitter, spec: ArraySpec, hint: str) -> tuple[Expr, tuple[ItemSet, ...]]:
    """One item or more, and the sets whose items may not repeat. Raises UnsupportedSchema, GrammarTooComplex."""
    conjs = [*spec.prefix]
    if spec.high is None or spec.high > len(conjs):
        conjs.append(spec.rest)
    sets = [emit.expander.expand(conj) for conj in conjs]
    for own in sets:
        if not all(_goes_on_array(emit, each) for each in own.array):
            raise UnsupportedSchema("", "uniqueItems", "of arrays that may not be longer")
    items = tuple([_item_set(own)._replace(last=_last_member(emit, own)) for own in sets])
    exprs: list[Expr] = [
        emit.rules.define(f"{hint}-unique", _item(emit, own, item, hint))
        for own, item in zip(sets, items, strict=True)
    ]
    if not spec.prefix:
        count = items[0].most()
        if count is not None:
            spec = replace(spec, high=count if spec.high is None else min(spec.high, count))
    elif any(_may_run_out(item, at, is_rest=at == len(spec.prefix)) for at, item in enumerate(items)):
        raise UnsupportedSchema("", "uniqueItems", "of items by position, of which few may be left")
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


def texts_of(arrays: Iterable[tuple[ItemSet, ...]]) -> ItemTexts | None:
    """The texts of the items of arrays at one place; None where it does not follow from a text which are left."""
    items = list(dict.fromkeys(item for each in arrays for item in each))
    words, others = items[0].words, items[0].others()
    for item in items[1:]:
        words, others = automata.unite(words, item.words), automata.unite(others, item.others())
    if len(items) > 1 and any(
        _misleads(item.words, words) or _misleads(item.others(), others, after=1) for item in items
    ):
        return None
    last = items[0].last
    if any(item.last != last for item in items):
        return None
    texts = None if last is None else texts_of([(last.values,)])
    return ItemTexts(
        automaton_of(words),
        automaton_of(others),
        endless=is_endless(words) and is_endless(others),
        containers=any(item.containers for item in items),
        last=None if last is None or texts is None else LastTexts(last.name, texts),
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


def _go_on(emit: Emitter, sets: TypeSets) -> bool:
    """Whether an array or object may always go on where it could end."""
    arrays = all(_goes_on_array(emit, spec) for spec in sets.array)
    return arrays and all(_goes_on_object(emit, spec) for spec in sets.object)


def _goes_on_array(emit: Emitter, spec: ArraySpec) -> bool:
    """Whether one more item may always follow."""
    if spec.high is not None or spec.contains:
        return False
    if spec in emit.held or spec.unique:
        return _item_set(emit.expander.expand(spec.rest)).is_open()
    return has_value(emit.expander, spec.rest)


def _last_member(emit: Emitter, sets: TypeSets) -> LastMember | None:
    """The last listed member with another value always left, of a closed object; None where all objects may go on.

    Raises UnsupportedSchema.
    """
    if all(_goes_on_object(emit, each) for each in sets.object):
        return None
    spec = next(iter(sets.object))
    if len(sets.object) > 1:
        raise UnsupportedSchema("", "uniqueItems", "of alternatives, one with listed properties only")
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    listed = [*dict.fromkeys([*spec.props, *spec.required])]
    is_closed = all(emit.expander.is_nothing(conj) for _, conj in classes)
    if is_closed and not spec.exists and spec.low <= len(spec.required) and spec.high is None:
        for name in reversed(listed):
            own = emit.expander.expand(emit.expander.algebra.lookup(spec, name))
            values = _item_set(own)
            if values.most() in (None, MAX_ITEMS) and _go_on(emit, own):
                return LastMember(name, values)
    raise UnsupportedSchema(
        "",
        "uniqueItems",
        "of objects that may have no other properties, and none of endlessly many values",
    )


def _object_with_last(emit: Emitter, spec: ObjectSpec, last: LastMember, hint: str) -> Expr:
    """Its members as always, but for the last one."""
    entries: dict[str, Expr] = {}
    for name in dict.fromkeys([*spec.props, *spec.required]):
        conj = emit.expander.algebra.lookup(spec, name)
        if name in spec.required or not emit.expander.is_nothing(conj):
            is_last = name == last.name
            value = (
                _item(emit, emit.expander.expand(conj), last.values, name)
                if is_last
                else emit.value(conj, name)
            )
            entries[name] = sequence([emit.key(name), emit.colon(), value])
    end = entries.pop(last.name)
    is_needed = last.name in spec.required
    fields = [Field(entry, name in spec.required) for name, entry in entries.items()]
    shape = Shape(fields, NEVER, [], 0, 0, None)
    options = [end] if shape.may_be_empty() else []
    if fields:
        members = listed_members(emit, shape, hint)
        options += [sequence([members, emit.comma(), end]), *([] if is_needed else [members])]
    return emit.brackets("{", choice(options), "}", may_be_empty=shape.may_be_empty() and not is_needed)


def _goes_on_object(emit: Emitter, spec: ObjectSpec) -> bool:
    """Whether one more property may always follow."""
    if spec.high is not None or spec.exists:
        return False
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    return any(
        automata.longest_word(strings.string_dfa(names)) is None and has_value(emit.expander, conj)
        for names, conj in classes
    )


def _item(emit: Emitter, sets: TypeSets, item: ItemSet, hint: str) -> Expr:
    form = OneSpelling(emit.rules)
    if isinstance(sets.string, strings.AnyString):
        body: Expr = sequence([repeat(form.chars(charset.ANY), 0, None), form.tail])
    else:
        body = string_expr(sets.string, form, emit.rules, hint)
    options = [terminal(sequence([Literal('"'), body]))]
    if item.numbers.accepting:
        options.append(terminal(dfa_to_expr(item.numbers, PlainText(), emit.rules, f"{hint}-number")))
    options += [Terminal(Literal(text)) for text in _literals(sets)]
    if item.last is not None:
        written = _object_with_last(emit, sets.object[0], item.last, f"{hint}-item")
        options.append(emit.rules.define(f"{hint}-item", written))
        sets = replace(sets, object=())
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


def automaton_of(dfa: Dfa) -> Automaton:
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
            f"the items of uniqueItems, or the names above them, need more than {MAX_EDGES} edges"
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
