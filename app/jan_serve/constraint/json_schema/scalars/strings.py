"""Sets of strings as Boolean expressions over patterns, lengths, formats and finite sets. Every constraint on one
string is a regular language, so these expressions are closed under and, or, not. They stay symbolic until
`string_dfa`: most schemas have one constraint, whose text needs no automaton."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import TypeAlias

import msgspec

from jan_serve.constraint import charset
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import LongTails, long_tails
from jan_serve.constraint.json_schema.scalars.formats import LARGEST_LOW, SHORTEST, format_regex
from jan_serve.constraint.limits import spend, uncharged
from jan_serve.constraint.regex import language
from jan_serve.constraint.regex.language import has_assertions, regex_dfa, search_regex
from jan_serve.constraint.regex.syntax import Alternation, Chars, Concat, Loop, Regex, parts


class AnyString(msgspec.Struct, frozen=True):
    """All strings there are, without exception."""


class OneOfStrings(msgspec.Struct, frozen=True):
    """A finite set, in the schema's order; without values, no string."""

    values: tuple[str, ...]


class Length(msgspec.Struct, frozen=True):
    """low..high code points; `high` None means no bound."""

    low: int
    high: int | None


class Pattern(msgspec.Struct, frozen=True):
    """Strings in which the ECMA-262 pattern is found."""

    pattern: str


class Format(msgspec.Struct, frozen=True):
    """Strings of a format that `formats` defines."""

    name: str


class AllOf(msgspec.Struct, frozen=True):
    """Strings that are in every item."""

    items: tuple[StringSet, ...]


class SomeOf(msgspec.Struct, frozen=True):
    """Strings that are in some item."""

    items: tuple[StringSet, ...]


class NotIn(msgspec.Struct, frozen=True):
    """Strings that are not in the item."""

    item: StringSet


StringSet: TypeAlias = AnyString | OneOfStrings | Length | Pattern | Format | AllOf | SomeOf | NotIn

# The usual ways to write no constraint: each finds the empty text in any string.
_FOUND_EVERYWHERE = frozenset({"", "^", "$", ".*", "^.*", ".*$"})

_URIS = frozenset({"uri", "uri-reference", "iri", "iri-reference"})

# Shorter bounds are counted by an automaton.
_LONG = 64

_FEW = 16

MOST_COMBINED = 3
"""Most sets that a search or a terminal combines: of more there are too many states; an automaton merges them."""

ANY_STRING = AnyString()
NO_STRING = OneOfStrings(())


def intersect(a: StringSet, b: StringSet) -> StringSet:
    """Strings of both; finite sets are filtered at once and lengths joined."""
    if a == b or isinstance(b, AnyString):
        return a
    if isinstance(a, AnyString):
        return b
    if isinstance(b, OneOfStrings) and not isinstance(a, OneOfStrings):
        a, b = b, a
    if isinstance(a, OneOfStrings):
        spend(len(a.values) // 4)
        if isinstance(b, OneOfStrings):
            both = frozenset(b.values)
            return OneOfStrings(tuple(value for value in a.values if value in both))
        return OneOfStrings(tuple(value for value in a.values if contains(b, value)))
    items: dict[StringSet, None] = {}
    length: Length | None = None
    excluded: tuple[str, ...] = ()
    for part in (*_parts(a), *_parts(b)):
        if isinstance(part, Length):
            length = part if length is None else _meet(length, part)
        elif isinstance(part, NotIn) and isinstance(part.item, OneOfStrings):
            excluded += part.item.values
        else:
            items[part] = None
    if excluded:
        items[NotIn(OneOfStrings(tuple(dict.fromkeys(excluded))))] = None
    if length is not None:
        if length.high is not None and length.high < length.low:
            return NO_STRING
        items[length] = None
    if any(isinstance(part, NotIn) and part.item in items for part in items):
        return NO_STRING
    return next(iter(items)) if len(items) == 1 else AllOf(tuple(items))


def _parts(s: StringSet) -> tuple[StringSet, ...]:
    return s.items if isinstance(s, AllOf) else (s,)


def _meet(a: Length, b: Length) -> Length:
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return Length(max(a.low, b.low), high)


def unite(a: StringSet, b: StringSet) -> StringSet:
    if a == b or isinstance(a, AnyString) or b == NO_STRING:
        return a
    if isinstance(b, AnyString) or a == NO_STRING:
        return b
    if isinstance(a, OneOfStrings) and isinstance(b, OneOfStrings):
        return OneOfStrings(tuple(dict.fromkeys(a.values + b.values)))
    items = (*(a.items if isinstance(a, SomeOf) else (a,)), *(b.items if isinstance(b, SomeOf) else (b,)))
    return SomeOf(tuple(dict.fromkeys(items)))


def complement(s: StringSet) -> StringSet:
    """Strings that are not in `s`."""
    if isinstance(s, NotIn):
        return s.item
    if isinstance(s, AnyString):
        return NO_STRING
    if s == NO_STRING:
        return ANY_STRING
    if isinstance(s, Length):
        below: StringSet = Length(0, s.low - 1) if s.low else NO_STRING
        return below if s.high is None else unite(below, Length(s.high + 1, None))
    return NotIn(s)


def intersect_all(items: Iterable[StringSet]) -> StringSet:
    return reduce(intersect, items, ANY_STRING)


def pattern_set(pattern: str) -> StringSet:
    """The strings that `pattern` is found in; a finite set where the pattern spells one out (`^(a|b)$`)."""
    bounded = language.leading_length(pattern)
    if bounded is not None:
        rest = pattern_set(bounded.rest)
        found = intersect(Length(bounded.low, bounded.high), rest)
        if not bounded.last or bounded.high is None:
            return found
        one_more = Length(bounded.high + 1, bounded.high + 1)
        return unite(found, intersect_all([rest, pattern_set(bounded.last), one_more]))
    regex = search_regex(pattern)
    words = _finite_words(regex)
    classes = (part for part in parts(regex) if isinstance(part, Chars) and charset.size(part.chars) > 1)
    if words is not None and (len(words) <= _FEW or not any(classes)):
        return OneOfStrings(tuple(dict.fromkeys(words)))
    return ANY_STRING if pattern in _FOUND_EVERYWHERE else Pattern(pattern)


def _finite_words(regex: Regex) -> list[str] | None:
    """The words of a regex that is characters, small classes and alternations; None for any other."""
    if isinstance(regex, Chars):
        few = 0 < charset.size(regex.chars) <= _FEW
        return [chr(c) for low, high in regex.chars for c in range(low, high + 1)] if few else None
    if isinstance(regex, Loop) and regex.low == regex.high and regex.low <= _FEW:
        regex = Concat((regex.item,) * regex.low)
    if isinstance(regex, Concat):
        words = [""]
        for item in regex.items:
            tails = _finite_words(item)
            if tails is None or len(words) * len(tails) > 512:
                return None
            words = [w + t for w in words for t in tails]
        return words
    if isinstance(regex, Alternation):
        parts_of = [_finite_words(item) for item in regex.items]
        return None if None in parts_of else [word for own in parts_of for word in own or ()]
    return None


def contains(s: StringSet, text: str) -> bool:
    """Whether one string is in the set. May raise UnsupportedPattern or GrammarTooComplex."""
    match s:
        case AnyString():
            return True
        case OneOfStrings(values):
            spend(len(values) // 64)
            return text in values
        case Length(low, high):
            return low <= len(text) and (high is None or len(text) <= high)
        case AllOf(items):
            return all(contains(item, text) for item in items)
        case SomeOf(items):
            return any(contains(item, text) for item in items)
        case NotIn(item):
            return not contains(item, text)
        case Pattern() | Format():
            spend(1 + len(text) // 8)
            return string_dfa(s).matches(text)


@lru_cache(maxsize=512)
def string_dfa(s: StringSet) -> Dfa:
    """The minimal automaton of the set. Raises GrammarTooComplex above the state limits."""
    match s:
        case AnyString():
            return automata.of_length(0, None)
        case OneOfStrings(values):
            return automata.from_words(values)
        case Length(low, high):
            return automata.of_length(low, high)
        case Pattern(pattern):
            return regex_dfa(search_regex(pattern))
        case Format(name):
            with uncharged():
                return regex_dfa(format_regex(name))
        case NotIn(item):
            return automata.complement(string_dfa(item))
        case SomeOf(items):
            return reduce(automata.unite, map(string_dfa, items))
        case AllOf(items):
            return _all_of_dfa(items)


def _all_of_dfa(items: tuple[StringSet, ...]) -> Dfa:
    """Lengths last: a language that is short enough by itself needs no counting product."""
    lengths = [item for item in items if isinstance(item, Length)]
    rest: tuple[StringSet, ...] = tuple(item for item in items if not isinstance(item, Length))
    if len(rest) < 2:
        result = string_dfa(rest[0]) if rest else automata.of_length(0, None)
    else:
        # All but the last is often known already: constraints are added one at a time.
        head = rest[0] if len(rest) == 2 else AllOf(rest[:-1])
        result = automata.intersect(string_dfa(head), string_dfa(rest[-1]))
    for item in lengths:
        longest, high = automata.longest_word(result), item.high
        if high is not None and longest is not None and longest <= high:
            high = None
        if item.low or high is not None:
            result = automata.with_length(result, item.low, high)
    return result


@lru_cache(maxsize=512)
def plain_regex(s: StringSet) -> Regex | None:
    """The expression whose words are the strings of a pattern or format, if it can be written as it is: it has words.
    None for any other set."""
    if not isinstance(s, Pattern | Format):
        return None
    regex = search_regex(s.pattern) if isinstance(s, Pattern) else format_regex(s.name)
    return None if has_assertions(regex) else regex


def leading_looks(s: StringSet) -> language.LeadingLooks | None:
    """A pattern that begins with lookaheads, in parts that have a text of their own. None for any other set."""
    looks = language.leading_looks(s.pattern) if isinstance(s, Pattern) else None
    if looks is None or any(map(has_assertions, (looks.rest, *looks.ahead, *looks.not_ahead))):
        return None
    return looks


def is_empty(s: StringSet) -> bool:
    """Whether no string is in the set."""
    if isinstance(s, OneOfStrings):
        return not s.values
    if isinstance(s, SomeOf):
        return all(map(is_empty, s.items))
    if isinstance(s, NotIn) and isinstance(s.item, OneOfStrings):
        return False
    if isinstance(s, AnyString | Length) or uri_bound(s) is not None or plain_regex(s) is not None:
        return False
    if (tails := bounded_tails(s)) is not None:
        return tails[0].is_empty(*tails[1:])
    if (parts := counted(s)) is not None:
        return not automata.has_word(string_dfa(parts[0]), parts[1].low, parts[1].high)
    if isinstance(s, AllOf) and len(s.items) <= MOST_COMBINED:
        return not automata.share_word([string_dfa(item) for item in s.items])
    return string_dfa(s).is_empty()


@lru_cache(maxsize=128)
def bounded_tails(s: StringSet) -> tuple[LongTails, int, int] | None:
    """A pattern with long tails, and the least and greatest length; None for any other set, and small bounds."""
    parts = counted(s)
    if parts is None or parts[1].high is None or parts[1].high < _LONG:
        return None
    tails = long_tails(string_dfa(parts[0]))
    return None if tails is None else (tails, parts[1].low, parts[1].high)


@lru_cache(maxsize=128)
def counted(s: StringSet) -> tuple[StringSet, Length] | None:
    """Sets that are in `s` where both hold: one of any length, and a length with a great bound. None for any other."""
    if not isinstance(s, AllOf):
        return None
    length = next((item for item in s.items if isinstance(item, Length)), None)
    if length is None or max(length.low, length.high or 0) < _LONG:
        return None
    return intersect_all(item for item in s.items if item is not length), length


def uri_bound(s: StringSet) -> int | None:
    """The greatest length of a set of URIs, where `bounded_uri` can write some of it."""
    if not isinstance(s, AllOf) or len(s.items) != 2:
        return None
    uris, length = s.items
    if not isinstance(uris, Format) or uris.name not in _URIS or not isinstance(length, Length):
        return None
    fits = length.high is not None and length.low <= LARGEST_LOW and length.high >= SHORTEST
    return length.high if fits else None
