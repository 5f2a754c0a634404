"""The names that a schema does not list, and whether they may run out for an executor that lets none repeat."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa, all_words, count_words, is_endless
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, Conj, NameRule, ObjectSpec, Terms
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import (
    ANY_STRING,
    NO_STRING,
    Length,
    NotIn,
    OneOfStrings,
    StringSet,
)
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

MAX_NAME_CLASSES: Final = 64
MOST_LISTED: Final = 64
"""Names of a pattern that are written as listed ones."""
_MAX_DEPTH: Final = 4


def few_names(expander: Expander, spec: ObjectSpec) -> dict[str, Conj]:
    """The names of patterns that are not listed, where there are few and no others, and what their values satisfy."""
    found: dict[str, Conj] = {}
    if any(rule.names != ANY_STRING for rule in spec.rules):
        for names, conj in _allowed(expander, spec.rules, ANY_STRING, TRUE):
            words = _words(names)
            if words is None:
                return {}
            found.update(dict.fromkeys(words, conj))
    for name in {*spec.props, *spec.required}:
        found.pop(name, None)
    return found if len(found) <= MOST_LISTED else {}


def without_listed(names: StringSet, listed: Iterable[str]) -> StringSet:
    """The names of a set of few that are not listed; of any other set all."""
    words = _words(names)
    if words is None:
        return names
    taken = frozenset(listed)
    return OneOfStrings(tuple(word for word in words if word not in taken))


def _words(names: StringSet) -> tuple[str, ...] | None:
    """All names of a set of few; None of any other."""
    if isinstance(names, OneOfStrings):
        return names.values if len(names.values) <= MOST_LISTED else None
    if _is_endless(names):
        return None
    dfa = strings.string_dfa(names)
    is_few = automata.longest_word(dfa) is not None and count_words(dfa, MOST_LISTED) <= MOST_LISTED
    return tuple(sorted(all_words(dfa))) if is_few else None


def names_that_run_out(expander: Expander, spec: ObjectSpec) -> Dfa | None:
    """The names of the other members of an object, if some of them begin in a way that only so many do; None where
    there is always another one. Raises UnsupportedSchema where that cannot be decided."""
    has_one = spec.high is not None and spec.high - len(spec.required) < 2
    if has_one or not spec.rules:
        return None
    listed = {*spec.props, *spec.required}
    classes = _allowed(expander, spec.rules, ANY_STRING, TRUE, listed)
    for exists in spec.exists:
        wanted = _allowed(expander, spec.rules, exists.names, exists.conj, listed)
        if not all(_is_endless(names) for names, _ in (*classes, *wanted)):
            raise _undecided("beside a condition on some property")
    if all(_is_endless(names) for names, _ in classes):
        return None
    if not all(has_value(expander, conj) for _, conj in classes):
        raise _undecided("whose values may not exist")
    found = strings.string_dfa(reduce(strings.unite, [names for names, _ in classes]))
    if is_endless(found):
        return None
    taken = [name for name in listed if found.matches(name)]
    if taken:
        found = automata.intersect(found, automata.complement(automata.from_words(taken)))
    return None if found.is_empty() else found


def takes_any_name(expander: Expander, spec: ObjectSpec) -> bool:
    """Whether any name that is not listed may be one of another member."""
    classes = _allowed(expander, spec.rules, ANY_STRING, TRUE)
    names = reduce(strings.unite, [names for names, conj in classes if has_value(expander, conj)], NO_STRING)
    return automata.complement(strings.string_dfa(names)).is_empty()


def _undecided(what: str) -> UnsupportedSchema:
    return UnsupportedSchema("", "patternProperties", f"of names that may run out, {what}")


def _allowed(
    expander: Expander, rules: Iterable[NameRule], names: StringSet, conj: Conj, listed: Iterable[str] = ()
) -> list[tuple[StringSet, Conj]]:
    classes = name_classes(expander.terms, rules, names, conj)
    left = ((without_listed(names, listed), conj) for names, conj in classes if not expander.is_nothing(conj))
    return [(names, conj) for names, conj in left if names != NO_STRING]


def _is_endless(names: StringSet) -> bool:
    """Whether every beginning of a name begins endlessly many. Some fewer change nothing."""
    match names:
        case strings.AnyString() | Length(_, None) | NotIn(OneOfStrings()):
            return True
        case OneOfStrings():
            return False
        case _:
            return is_endless(strings.string_dfa(names))


def has_value(expander: Expander, conj: Conj, depth: int = _MAX_DEPTH) -> bool:
    """Whether certainly some value satisfies the conjunction. Looks so deep only."""
    sets = expander.expand(conj)
    if sets.null or sets.boolean or sets.number or not strings.is_empty(sets.string):
        return True
    return depth > 0 and (
        any(_has_array(expander, spec, depth - 1) for spec in sets.array)
        or any(_has_object(expander, spec, depth - 1) for spec in sets.object)
    )


def _has_array(expander: Expander, spec: ArraySpec, depth: int) -> bool:
    if spec.contains or (spec.unique and spec.low > 1) or (spec.high is not None and spec.high < spec.low):
        return False
    return all(has_value(expander, conj, depth) for conj in spec.items()[: spec.low])


def _has_object(expander: Expander, spec: ObjectSpec, depth: int) -> bool:
    least = len(spec.required)
    if spec.exists or least < spec.low or (spec.high is not None and spec.high < least):
        return False
    return all(has_value(expander, expander.algebra.lookup(spec, name), depth) for name in spec.required)


def name_classes(
    terms: Terms, rules: Iterable[NameRule], names: StringSet, conj: Conj
) -> list[tuple[StringSet, Conj]]:
    """Names, whose values satisfy `conj`, by the rules that they obey, with all that their values satisfy."""
    classes = [(names, conj)]
    for rule in rules:
        if rule.names == ANY_STRING:
            classes = [(names, terms.conjoin(conj, rule.conj)) for names, conj in classes]
            continue
        split: list[tuple[StringSet, Conj]] = []
        for names, conj in classes:
            inside = strings.intersect(names, rule.names)
            if not strings.is_empty(inside):
                split.append((inside, terms.conjoin(conj, rule.conj)))
                names = strings.intersect(names, strings.complement(rule.names))
            if not strings.is_empty(names):
                split.append((names, conj))
        classes = split
        if len(classes) > MAX_NAME_CLASSES:
            raise GrammarTooComplex("patternProperties split the names into too many classes")
    return classes
