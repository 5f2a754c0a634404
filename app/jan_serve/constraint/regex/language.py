"""The meaning of a pattern: anchors, search and lookaheads are resolved here into one regular language."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from jan_serve.constraint import charset
from jan_serve.constraint.automata import dfa as automata
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
    Loop,
    Regex,
    alternation,
    concat,
)
from jan_serve.constraint.regex.classes import LINE_TERMINATORS
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.constraint.regex.parse import parse_regex
from jan_serve.errors import UnsupportedPattern


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


_LENGTH_AHEAD: Final = re.compile(r"\^\(\?=\.\{([0-9]+)(?:(,)([0-9]*))?\}\$\)")


def leading_length(pattern: str) -> tuple[int, int | None, str] | None:
    """A pattern that begins with `^(?=.{m,n}$)`, as these bounds and the pattern without it. None for any other.

    No text of the rest has a line terminator, which the point does not match either.
    """
    found = _LENGTH_AHEAD.match(pattern)
    if found is None or not isinstance(parse_regex(pattern), Concat):
        return None
    rest = "^" + pattern[found.end() :]
    if _may_have_lines(search_regex(rest)):
        return None
    low, comma, high = found.groups()
    most = None if comma and not high else int(high or low)
    return int(low), most, rest


def _may_have_lines(regex: Regex) -> bool:
    if isinstance(regex, Chars):
        return bool(charset.intersect(regex.chars, LINE_TERMINATORS))
    if isinstance(regex, Concat | Alternation):
        return any(_may_have_lines(item) for item in regex.items)
    return isinstance(regex, Automaton | Look) or (isinstance(regex, Loop) and _may_have_lines(regex.item))


def has_assertions(regex: Regex) -> bool:
    """Whether a full match still depends on `^`, `$`, `\\b` or an embedded automaton."""
    if isinstance(regex, Assertion | Automaton | Look):
        return True
    if isinstance(regex, Concat | Alternation):
        return any(has_assertions(item) for item in regex.items)
    return isinstance(regex, Loop) and has_assertions(regex.item)


def _has_look(regex: Regex) -> bool:
    if isinstance(regex, Look):
        return True
    if isinstance(regex, Concat | Alternation):
        return any(_has_look(item) for item in regex.items)
    return isinstance(regex, Loop) and _has_look(regex.item)


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
    if isinstance(first, Alternation) and any(_starts(item, "^") for item in first.items):
        return alternation([_with_search(concat([branch, *items[1:]])) for branch in first.items])
    if isinstance(last, Alternation) and any(_ends(item, "$") for item in last.items):
        return alternation([_with_search(concat([*items[:-1], branch])) for branch in last.items])
    if first is None or not _starts(first, "^"):
        items = [ANYTHING, *items]
    if last is None or not _ends(last, "$"):
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


def _starts(regex: Regex, kind: str) -> bool:
    if isinstance(regex, Concat):
        return bool(regex.items) and _starts(regex.items[0], kind)
    return regex == Assertion(kind)


def _ends(regex: Regex, kind: str) -> bool:
    if isinstance(regex, Concat):
        return bool(regex.items) and _ends(regex.items[-1], kind)
    return regex == Assertion(kind)


def _without_edges(regex: Regex) -> Regex:
    """Reduce lookaheads, then drop the anchors that the place itself satisfies."""
    if _has_look(regex):
        regex = _reduce(regex, at_start=True)
    if isinstance(regex, Alternation):
        return alternation([_without_edges(item) for item in regex.items])
    items = parts_of(regex)
    while items and items[0] == Assertion("^"):
        items.pop(0)
    while items and items[-1] == Assertion("$"):
        items.pop()
    return concat(items) if items else EPSILON


def _reduce(regex: Regex, *, at_start: bool) -> Regex:
    """Replace a lookahead and all that follows it by the product automaton of the two.

    `regex` is all that remains of the string from its place on; `at_start` says that the place is its beginning.
    """
    if not _has_look(regex):
        return regex
    if isinstance(regex, Alternation):
        return alternation([_reduce(item, at_start=at_start) for item in regex.items])
    items = parts_of(regex)
    for index, item in enumerate(items):
        if not _has_look(item):
            continue
        before, rest = items[:index], items[index + 1 :]
        here = at_start and all(b == Assertion("^") for b in before)
        if isinstance(item, Look):
            tail: Regex = _resolve_look(item, rest, at_start=here)
        elif isinstance(item, Alternation):
            tail = alternation([_reduce(concat([branch, *rest]), at_start=here) for branch in item.items])
        elif isinstance(item, Loop) and item.low <= 1 and item.high == 1:
            taken = _reduce(concat([item.item, *rest]), at_start=here)
            tail = alternation([taken, _reduce(concat(rest), at_start=here)])
        elif (tempered := _tempered(item, rest)) is not None:
            tail = _resolve_look(tempered[0], [tempered[1], *rest], at_start=here)
        else:
            raise UnsupportedPattern(_look_position(item), "a lookahead inside a repetition")
        return concat([*before, tail])
    return regex


def _tempered(item: Regex, rest: list[Regex]) -> tuple[Look, Loop] | None:
    """`(?:(?!x)c)*` at the end of the text as `(?!c*x)` and `c*`; None for any other repetition."""
    if not isinstance(item, Loop) or any(part != Assertion("$") for part in rest):
        return None
    *looks, last = parts_of(item.item)
    barred = [look.item for look in looks if isinstance(look, Look) and look.negated]
    if not isinstance(last, Chars) or len(barred) < len(looks):
        return None
    barred_text = alternation(barred)
    if has_assertions(barred_text) or compile_dfa(barred_text).matches(""):
        return None
    before = Loop(last, 0, None if item.high is None else max(item.high - 1, 0))
    look = Look(concat([before, barred_text]), True, _look_position(item))
    return look, Loop(last, item.low, item.high)


def _look_position(regex: Regex) -> int:
    if isinstance(regex, Look):
        return regex.position
    parts = (
        regex.items
        if isinstance(regex, Concat | Alternation)
        else (regex.item,)
        if isinstance(regex, Loop)
        else ()
    )
    return next((_look_position(p) for p in parts if _has_look(p)), 0)


def _resolve_look(look: Look, rest: list[Regex], *, at_start: bool) -> Regex:
    ahead = _reduce(concat([look.item, ANYTHING]), at_start=at_start)
    following = _reduce(concat(rest) if rest else EPSILON, at_start=at_start)
    if not at_start and (_needs_left(ahead) or _needs_left(following)):
        raise UnsupportedPattern(look.position, "a lookahead before '^' or a word boundary")
    condition = compile_dfa(ahead)
    if look.negated:
        condition = automata.complement(condition)
    return Automaton(automata.intersect(condition, compile_dfa(following)))


def _needs_left(regex: Regex) -> bool:
    """Whether the meaning depends on the character before."""
    if isinstance(regex, Assertion):
        return regex.kind != "$"
    if isinstance(regex, Concat | Alternation):
        return any(_needs_left(item) for item in regex.items)
    return isinstance(regex, Loop) and _needs_left(regex.item)
