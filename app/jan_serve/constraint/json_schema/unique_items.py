"""This module writes the items that must differ and that no grammar can tell apart: each scalar in one spelling, for
the executor to compare. Equal scalars have equal texts, so the executor compares texts; it knows from the automata
which beginnings of an item are left. Arrays and objects are compared when they end. One that is there already has to
go on, so only those are allowed that always may. An object of listed names only ends with a member of endlessly many
values, and an array of so many items with such an item. That last value is compared as an item is: with those of the
objects and arrays that are equal otherwise."""

from __future__ import annotations

from collections.abc import Container, Iterable
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from jan_serve.constraint import ast, charset
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.json_schema.emit_objects import Field, Shape, listed_members
from jan_serve.constraint.json_schema.emit_strings import string_expr
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, Conj, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.number_text import number_dfa
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING
from jan_serve.constraint.json_schema.unlisted_names import has_value, name_classes
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import OneSpelling, PlainText
from jan_serve.core.uniqueness import Automaton, ItemTexts, LastTexts
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

if TYPE_CHECKING:
    from jan_serve.constraint.json_schema.translate import Emitter

MAX_EDGES: Final = 20_000
"""Most edges of the automata of one array."""
MAX_ITEMS: Final = 10_000
"""Most items of an array whose items are of a finite set."""
_MAX_POSITIONS: Final = 64
_MAX_DEPTH: Final = 4
_RULE_EVERY: Final = 6


class LastValue(NamedTuple):
    """place: the name of a member, or the position in an array."""

    place: str | int
    values: ItemSet


@lru_cache(maxsize=128)
def _joined(numbers: automata.Dfa, literals: tuple[str, ...]) -> automata.Dfa:
    return automata.unite(numbers, automata.from_words(literals))


class ItemSet(NamedTuple):
    """The items at one place of an array: strings, numbers, the texts of the others; whether arrays or objects too.
    last: what its closed arrays and objects end with."""

    words: automata.Dfa
    numbers: automata.Dfa
    literals: tuple[str, ...]
    containers: bool
    last: tuple[LastValue, ...] = ()

    def others(self) -> automata.Dfa:
        """The texts of the scalars that are no strings."""
        return _joined(self.numbers, self.literals)

    def kinds(self) -> frozenset[str]:
        """See `kinds_of`."""
        has = {
            "string": self.words.accepting,
            "scalar": self.others().accepting,
            "container": self.containers,
        }
        return frozenset(kind for kind, any_of in has.items() if any_of)

    def most(self) -> int | None:
        """How many there are, or MAX_ITEMS of more; None where there is no end."""
        if self.containers:
            counts = [last.values.most() for last in self.last]
            return MAX_ITEMS if counts and None not in counts else None
        return _count(self.words, self.numbers, len(self.literals))


def compared_items(emit: Emitter, spec: ArraySpec, hint: str) -> tuple[ast.Expr, tuple[ItemSet, ...]]:
    """One item or more, and the sets whose items may not repeat. Raises UnsupportedSchema, GrammarTooComplex."""
    conjs = [*spec.prefix]
    if spec.high is None or spec.high > len(conjs):
        conjs.append(spec.rest)
    sets = [emit.expander.expand(conj) for conj in conjs]
    items = tuple([_item_set(own)._replace(last=_last_values(emit, own)) for own in sets])
    exprs: list[ast.Expr] = [
        emit.rules.define(f"{hint}-unique", _item(emit, own, item, hint))
        for own, item in zip(sets, items, strict=True)
    ]
    if not spec.prefix:
        count = items[0].most()
        if count is not None:
            spec = replace(spec, high=count if spec.high is None else min(spec.high, count))
    elif any(
        (count := item.most()) is not None and (count <= at or at == len(spec.prefix))
        for at, item in enumerate(items)
    ):  # all items of a position may be there before it
        raise UnsupportedSchema("", "uniqueItems", "of items by position, of which few may be left")
    if spec.high is not None and spec.high < max(spec.low, 1):
        return ast.NEVER, items
    return row(emit, spec, exprs, hint), items


def row(emit: Emitter, spec: ArraySpec, items: list[ast.Expr], hint: str) -> ast.Expr:
    """One item or more. items: of each position, and then of all others, unless there are none."""
    listed = max(len(spec.prefix), 1)
    tail: ast.Expr = ast.EMPTY
    if len(items) > len(spec.prefix):
        more = ast.sequence([emit.comma(), items[-1]])
        tail = ast.repeat(more, max(spec.low - listed, 0), None if spec.high is None else spec.high - listed)
    for at in range(listed - 1, 0, -1):
        tail = ast.sequence([emit.comma(), items[at], tail])
        tail = tail if at < spec.low else ast.optional(tail)
        if at % _RULE_EVERY == 0:
            tail = emit.rules.define(f"{hint}-tail", tail)
    return ast.sequence([items[0], tail])


def counted_set(emit: Emitter, spec: ArraySpec) -> ItemSet:
    """The items of an array whose `contains` are counted. Raises UnsupportedSchema where some may be needed and not
    be left."""
    items, matching = (
        [_item_set(emit.expander.expand(conj)) for conj in conjs]
        for conjs in ([spec.rest], [emit.expander.terms.conjoin(spec.rest, c.conj) for c in spec.contains])
    )
    counts = [own.most() for own in matching]
    if (
        spec.prefix
        or spec.high is not None
        or items[0].containers
        or items[0].most() is not None
        or any(c.high is not None for c in spec.contains)
        or any(n is not None and n < c.low for n, c in zip(counts, spec.contains, strict=True))
    ):
        reason = "together with contains, unless any number of scalars may be beside those"
        raise UnsupportedSchema("", "uniqueItems", reason)
    return items[0]


def compared_item(emit: Emitter, conj: Conj, hint: str) -> ast.Expr:
    """A scalar that may not repeat."""
    own = emit.expander.expand(conj)
    return emit.rules.define(f"{hint}-unique", _item(emit, own, _item_set(own), hint))


def kinds_of(all_of: Iterable[TypeSets]) -> frozenset[str]:
    """Strings, other scalars, and arrays and objects: what the first character of an item tells apart."""
    return frozenset[str]().union(*(_item_set(sets).kinds() for sets in all_of))


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
    words = reduce(automata.unite, [item.words for item in items])
    others = reduce(automata.unite, [item.others() for item in items])
    if len(items) > 1 and any(
        _misleads(item.words, words) or _misleads(item.others(), others, after=1) for item in items
    ):
        return None
    by_place: dict[str | int, list[tuple[ItemSet, ...]]] = {}
    for last in items[0].last:
        by_place.setdefault(last.place, []).append((last.values,))
    ends = {place: texts_of(values) for place, values in by_place.items()}
    if None in ends.values() or any(item.last != items[0].last for item in items):
        return None
    return ItemTexts(
        automaton_of(words),
        automaton_of(others),
        endless=automata.is_endless(words) and automata.is_endless(others),
        containers=any(item.containers for item in items),
        last=tuple([LastTexts(place, texts) for place, texts in ends.items() if texts is not None]),
    )


def is_within(own: ItemSet, other: ItemSet) -> bool:
    """Whether these are scalars, all of them among the others."""
    pairs = ((own.words, other.words), (own.others(), other.others()))
    return not own.containers and all(automata.is_within(a, b) for a, b in pairs)


def _misleads(own: automata.Dfa, all_texts: automata.Dfa, *, after: int = 0) -> bool:
    """Whether some beginning of few texts of a set is also one of others, so that these seem to be left. after: the
    length from which on a beginning counts."""
    if not own.accepting:
        return False
    beyond = automata.intersect(all_texts, automata.complement(own))
    endless, edges, edges_beyond = automata.endless_states(own), own.live_edges(), beyond.live_edges()
    seen = {(0, 0, 0)}
    todo = list(seen) if edges_beyond else []
    while todo:
        state, other, length = todo.pop()
        if length >= after and state not in endless:
            return True
        spend(1)
        for target, chars in edges[state].items():
            for end, taken in edges_beyond[other].items():
                found = (target, end, min(length + 1, after))
                if found not in seen and charset.intersect(chars, taken):
                    seen.add(found)
                    todo.append(found)
    return False


def _goes_on_array(emit: Emitter, spec: ArraySpec) -> bool:
    """Whether one more item may always follow."""
    if spec.high is not None or spec.contains:
        return False
    if spec in emit.held or spec.unique:
        return _item_set(emit.expander.expand(spec.rest)).most() is None
    return has_value(emit.expander, spec.rest)


def _last_values(emit: Emitter, sets: TypeSets, depth: int = 0) -> tuple[LastValue, ...]:
    """What the arrays and objects end with that have listed names or so many items only, in their order: a value that
    always may be another one. None of arrays where all may go on, and none of objects. Raises UnsupportedSchema."""
    arrays = [emit.expander.algebra.trimmed(spec) for spec in sets.array]
    found: list[LastValue] = []
    if _may_end([_goes_on_array(emit, spec) for spec in sets.array]):
        found += _distinct([(_last_item(emit, spec, depth), range(spec.high or 0)) for spec in arrays])
    if _may_end([_goes_on_object(emit, spec) for spec in sets.object]):
        found += _distinct([(_last_member(emit, spec, depth), _listed(spec)) for spec in sets.object])
    return tuple(found)


def _may_end(go_on: list[bool]) -> bool:
    """Whether the arrays or objects of all kinds may not go on. Raises UnsupportedSchema where only some may."""
    if any(go_on) and not all(go_on):
        raise UnsupportedSchema("", "uniqueItems", "of alternatives, of which only some may always go on")
    return not all(go_on)


def _distinct(kinds: list[tuple[LastValue, Container[str | int]]]) -> list[LastValue]:
    """The last values, where none stands before the end of another kind. kinds: with the places that each may have."""
    for last, _ in kinds:
        if any(last.place in places and own.place != last.place for own, places in kinds):
            reason = "of alternatives, one of which goes on where another ends"
            raise UnsupportedSchema("", "uniqueItems", reason)
    return [last for last, _ in kinds]


def _listed(spec: ObjectSpec) -> list[str]:
    return [*dict.fromkeys([*spec.props, *spec.required])]


def _last_value(emit: Emitter, place: str | int, conj: Conj, depth: int) -> LastValue | None:
    """The value at a place, if it may always be another one."""
    if depth > _MAX_DEPTH:
        return None
    own = emit.expander.expand(conj)
    try:
        values = _item_set(own)._replace(last=_last_values(emit, own, depth + 1))
    except UnsupportedSchema:
        return None
    return LastValue(place, values) if values.most() in (None, MAX_ITEMS) else None


def _last_item(emit: Emitter, spec: ArraySpec, depth: int) -> LastValue:
    last = None
    if spec.high and spec.high <= _MAX_POSITIONS and not (spec.contains or spec.unique or spec in emit.held):
        last = _last_value(emit, spec.high - 1, spec.item(spec.high - 1), depth)
    if last is None:
        reason = "of arrays that may not be longer, and do not end with one of endlessly many values"
        raise UnsupportedSchema("", "uniqueItems", reason)
    return last


def _last_member(emit: Emitter, spec: ObjectSpec, depth: int) -> LastValue:
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    is_closed = all(emit.expander.is_nothing(conj) for _, conj in classes)
    if is_closed and not spec.exists and spec.low <= len(spec.required) and spec.high is None:
        for name in reversed(_listed(spec)):
            last = _last_value(emit, name, emit.expander.algebra.lookup(spec, name), depth)
            if last is not None:
                return last
    reason = "of objects that may have no other properties, and none of endlessly many values"
    raise UnsupportedSchema("", "uniqueItems", reason)


def _array_with_last(emit: Emitter, spec: ArraySpec, last: LastValue, hint: str) -> ast.Expr:
    """Its items as always, but for the last one."""
    spec = emit.expander.algebra.trimmed(spec)
    *conjs, end = [spec.item(position) for position in range(int(last.place) + 1)]
    last_item = _item(emit, emit.expander.expand(end), last.values, hint)
    exprs = [*(emit.value(conj, f"{hint}-item") for conj in conjs), last_item]
    items = row(emit, replace(spec, prefix=(*conjs, end)), exprs, hint)
    return emit.brackets("[", items, "]", may_be_empty=spec.low == 0)


def _object_with_last(emit: Emitter, spec: ObjectSpec, last: LastValue, hint: str) -> ast.Expr:
    """Its members as always, but for the last one."""
    entries: dict[str, ast.Expr] = {}
    for name in _listed(spec):
        conj = emit.expander.algebra.lookup(spec, name)
        if name in spec.required or not emit.expander.is_nothing(conj):
            if name == last.place:
                value = _item(emit, emit.expander.expand(conj), last.values, name)
            else:
                value = emit.value(conj, name)
            entries[name] = ast.sequence([emit.key(name), emit.colon(), value])
    end = entries.pop(str(last.place))
    is_needed = last.place in spec.required
    fields = [Field(entry, name in spec.required) for name, entry in entries.items()]
    shape = Shape(fields, ast.NEVER, [], 0, 0, None)
    options = [end] if shape.may_be_empty() else []
    if fields:
        members = listed_members(emit, shape, hint)
        options += [ast.sequence([members, emit.comma(), end]), *([] if is_needed else [members])]
    return emit.brackets("{", ast.choice(options), "}", may_be_empty=shape.may_be_empty() and not is_needed)


def _goes_on_object(emit: Emitter, spec: ObjectSpec) -> bool:
    """Whether one more property may always follow."""
    if spec.high is not None or spec.exists:
        return False
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    return any(
        automata.longest_word(strings.string_dfa(names)) is None and has_value(emit.expander, conj)
        for names, conj in classes
    )


def _item(emit: Emitter, sets: TypeSets, item: ItemSet, hint: str) -> ast.Expr:
    form = OneSpelling(emit.rules)
    if isinstance(sets.string, strings.AnyString):
        body: ast.Expr = ast.sequence([ast.repeat(form.chars(charset.ANY), 0, None), form.tail])
    else:
        body = string_expr(sets.string, form, emit.rules, hint)
    options = [ast.terminal(ast.sequence([ast.Literal('"'), body]))]
    if item.numbers.accepting:
        options.append(ast.terminal(dfa_to_expr(item.numbers, PlainText(), emit.rules, f"{hint}-number")))
    options += [ast.Terminal(ast.Literal(text)) for text in _literals(sets)]
    if item.last:
        arrays = [last for last in item.last if isinstance(last.place, int)]
        objects = [last for last in item.last if isinstance(last.place, str)]
        written = [_array_with_last(emit, *each, hint) for each in zip(sets.array, arrays, strict=False)]
        written += [_object_with_last(emit, *each, hint) for each in zip(sets.object, objects, strict=False)]
        options += [emit.rules.define(f"{hint}-item", each) for each in written]
        sets = replace(sets, array=() if arrays else sets.array, object=() if objects else sets.object)
    if sets.array or sets.object:
        options.append(emit.containers(sets, f"{hint}-item"))
    return ast.choice(option for option in options if option != ast.NEVER)


def _literals(sets: TypeSets) -> list[str]:
    booleans = [text for bit, text in ((1, "false"), (2, "true")) if sets.boolean & bit]
    return [*booleans, *(["null"] if sets.null else [])]


def _numbers(sets: TypeSets) -> automata.Dfa:
    """The texts of the numbers, without exponents and needless zeros, except that 1 may be 1.0."""
    found = automata.from_words([])
    for spec in sets.number:
        found = automata.unite(found, number_dfa(spec))
    return automata.intersect(found, _plain_numbers())


@lru_cache(maxsize=1)
def _plain_numbers() -> automata.Dfa:
    return regex_dfa(full_regex(r"0(\.0)?|-?([1-9][0-9]*(\.(0|[0-9]*[1-9]))?|0\.[0-9]*[1-9])"))


def automaton_of(dfa: automata.Dfa) -> Automaton:
    """The words of `dfa`, without states that lead to none. Raises GrammarTooComplex above MAX_EDGES."""
    live = dfa.live_edges()
    order = [0, *sorted(live.keys() - {0})]
    numbers = {state: number for number, state in enumerate(order)}
    edges: list[tuple[tuple[int, int, int], ...]] = []
    for state in order:
        onward = [(to, charset.subtract(own, automata.SURROGATES)) for to, own in live.get(state, {}).items()]
        edges.append(tuple(sorted((low, high, numbers[to]) for to, own in onward for low, high in own)))
    if sum(map(len, edges)) > MAX_EDGES:
        reason = f"the items of uniqueItems, or the names above them, need more than {MAX_EDGES} edges"
        raise GrammarTooComplex(reason)
    return Automaton(tuple(edges), frozenset(numbers[state] for state in dfa.accepting))


def _count(words: automata.Dfa, numbers: automata.Dfa, literals: int) -> int | None:
    """How many values there are, or MAX_ITEMS of more; None where there is no end."""
    found = literals
    for dfa in (words, numbers):
        if automata.longest_word(dfa) is None:
            return None
        found += automata.count_words(dfa, MAX_ITEMS)
    if found > MAX_ITEMS:
        return MAX_ITEMS
    return (
        found
        - automata.count_words(numbers, MAX_ITEMS)
        + len({Fraction(text) for text in automata.all_words(numbers)})
    )
