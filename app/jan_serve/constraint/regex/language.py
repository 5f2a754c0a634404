"""The meaning of a pattern: anchors and search are resolved here into one regular language."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from jan_serve.constraint import charset
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.regex.ast import (
    ANYTHING,
    EPSILON,
    Alternation,
    Assertion,
    Automaton,
    Chars,
    Concat,
    Look,
    Regex,
    alternation,
    concat,
    parts,
)
from jan_serve.constraint.regex.classes import LINE_TERMINATORS
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.constraint.regex.parse import parse_regex


@lru_cache(maxsize=512)
def search_regex(pattern: str) -> Regex:
    """An AST whose full matches are the strings in which ECMA-262 finds `pattern` somewhere."""
    return _without_edges(_with_search(parse_regex(pattern)))


@lru_cache(maxsize=512)
def full_regex(pattern: str) -> Regex:
    """An AST whose full matches are those of `pattern`, as `^(?:pattern)$`."""
    body = parse_regex(pattern)
    return _without_edges(concat([Assertion("^"), body, Assertion("$")]))


@lru_cache(maxsize=512)
def regex_dfa(regex: Regex) -> Dfa:
    """The minimal DFA of an AST from `search_regex` or `full_regex`."""
    return compile_dfa(regex)


class LeadingLooks(NamedTuple):
    """A pattern as expressions of whole texts: those of `rest` and all of `ahead` that are none of `not_ahead`."""

    rest: Regex
    ahead: tuple[Regex, ...]
    not_ahead: tuple[Regex, ...]


@lru_cache(maxsize=512)
def leading_looks(pattern: str) -> LeadingLooks | None:
    """A pattern that begins with `^` and lookaheads. None for any other."""
    items = parts_of(parse_regex(pattern))
    looks: list[Look] = []
    while len(items) > 1 and items[0] == Assertion("^") and isinstance(look := items[1], Look):
        looks.append(look)
        del items[1]
    if not looks:
        return None
    texts = {look: _without_edges(_with_search(concat([Assertion("^"), look.item]))) for look in looks}
    return LeadingLooks(
        _without_edges(_with_search(concat(items))),
        tuple(texts[look] for look in looks if not look.negated),
        tuple(texts[look] for look in looks if look.negated),
    )


_LENGTH_AHEAD: Final = re.compile(
    r"\^\(\?=\.\{([0-9]+)(?:(,)([0-9]*))?\}(?:(\\[^\w\s]|[\w/:;,-])\?)?\$\)", re.ASCII
)


class LeadingLength(NamedTuple):
    """A length, and the pattern beside it. last: a pattern of the texts that may be longer by one character; "" for
    none."""

    low: int
    high: int | None
    last: str
    rest: str


def leading_length(pattern: str) -> LeadingLength | None:
    """A pattern that begins with `^(?=.{m,n}$)` or `^(?=.{m,n}c?$)`. None for any other.

    No text of the rest has a line terminator, which the point does not match either.
    """
    found = _LENGTH_AHEAD.match(pattern)
    if found is None or not isinstance(parse_regex(pattern), Concat):
        return None
    rest = "^" + pattern[found.end() :]
    if _may_have_lines(search_regex(rest)):
        return None
    low, comma, high, last = found.groups()
    most = None if comma and not high else int(high or low)
    return LeadingLength(int(low), most, f"{last}$" if last else "", rest)


def _may_have_lines(regex: Regex) -> bool:
    return any(
        isinstance(part, Automaton)
        or (isinstance(part, Chars) and bool(charset.intersect(part.chars, LINE_TERMINATORS)))
        for part in parts(regex)
    )


def has_assertions(regex: Regex) -> bool:
    """Whether a full match still depends on `^`, `$`, `\\b`, a lookahead or an embedded automaton."""
    return any(isinstance(part, Assertion | Automaton | Look) for part in parts(regex))


def _with_search(regex: Regex) -> Regex:
    """Surround with "anything", branch by branch, unless an anchor at that end makes it pointless."""
    if isinstance(regex, Alternation):
        floating = [item for item in regex.items if not _touches_edge(item)]
        branches = [_with_search(item) for item in regex.items if _touches_edge(item)]
        if floating:
            branches.append(concat([ANYTHING, alternation(floating), ANYTHING]))
        return alternation(branches)
    items = parts_of(regex)
    if len(items) == 1 and isinstance(items[0], Alternation):
        return _with_search(items[0])
    first, last = (items[0], items[-1]) if items else (None, None)
    if isinstance(first, Alternation) and any(_has_edge(item, 0) for item in first.items):
        return alternation([_with_search(concat([branch, *items[1:]])) for branch in first.items])
    if isinstance(last, Alternation) and any(_has_edge(item, -1) for item in last.items):
        return alternation([_with_search(concat([*items[:-1], branch])) for branch in last.items])
    if first is None or not _has_edge(first, 0):
        items = [ANYTHING, *items]
    if last is None or not _has_edge(last, -1):
        items = [*items, ANYTHING]
    return concat(items)


def parts_of(regex: Regex) -> list[Regex]:
    """The parts of a concatenation; any other expression is its only part."""
    return list(regex.items) if isinstance(regex, Concat) else [regex]


def _touches_edge(regex: Regex) -> bool:
    """Whether an anchor stands at either end of the expression, perhaps in a nested branch only."""
    if isinstance(regex, Concat):
        return bool(regex.items) and (_touches_edge(regex.items[0]) or _touches_edge(regex.items[-1]))
    if isinstance(regex, Alternation):
        return any(_touches_edge(item) for item in regex.items)
    return isinstance(regex, Assertion) and regex.kind in "^$"


def _has_edge(regex: Regex, at: int) -> bool:
    """Whether the first part (0) is `^`, or the last one (-1) `$`."""
    if isinstance(regex, Concat):
        return bool(regex.items) and _has_edge(regex.items[at], at)
    return regex == Assertion("^$"[at])


def _without_edges(regex: Regex) -> Regex:
    """Drop the anchors that the place itself satisfies."""
    if isinstance(regex, Alternation):
        return alternation([_without_edges(item) for item in regex.items])
    items = parts_of(regex)
    while items and items[0] == Assertion("^"):
        items.pop(0)
    while items and items[-1] == Assertion("$"):
        items.pop()
    return concat(items) if items else EPSILON
