"""The meaning of a pattern: anchors and search are resolved here into one regular language, which can be a grammar."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from jan_serve.constraint import charset
from jan_serve.constraint.ast import Expr, Grammar, Terminal, choice, repeat, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import budget, spend
from jan_serve.constraint.regex import syntax
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import PlainText
from jan_serve.errors import UnsupportedPattern


@lru_cache(maxsize=512)
def search_regex(pattern: str) -> syntax.Regex:
    """An AST whose full matches are the strings in which ECMA-262 finds `pattern` somewhere."""
    return _without_edges(_with_search(syntax.parse_regex(pattern)))


@lru_cache(maxsize=512)
def full_regex(pattern: str) -> syntax.Regex:
    """An AST whose full matches are those of `pattern`, as `^(?:pattern)$`."""
    body = syntax.parse_regex(pattern)
    return _without_edges(syntax.concat([syntax.Assertion("^"), body, syntax.Assertion("$")]))


@lru_cache(maxsize=512)
def regex_dfa(regex: syntax.Regex) -> Dfa:
    """The minimal DFA of an AST from `search_regex` or `full_regex`."""
    return compile_dfa(regex)


class LeadingLooks(NamedTuple):
    """A pattern as expressions of whole texts: those of `rest` and all of `ahead` that are none of `not_ahead`."""

    rest: syntax.Regex
    ahead: tuple[syntax.Regex, ...]
    not_ahead: tuple[syntax.Regex, ...]


@lru_cache(maxsize=512)
def leading_looks(pattern: str) -> LeadingLooks | None:
    """A pattern that begins with `^` and lookaheads. None for any other."""
    items = parts_of(syntax.parse_regex(pattern))
    looks: list[syntax.Look] = []
    while len(items) > 1 and items[0] == syntax.Assertion("^") and isinstance(look := items[1], syntax.Look):
        looks.append(look)
        del items[1]
    if not looks:
        return None
    texts = {
        look: _without_edges(_with_search(syntax.concat([syntax.Assertion("^"), look.item])))
        for look in looks
    }
    return LeadingLooks(
        _without_edges(_with_search(syntax.concat(items))),
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
    """A pattern that begins with `^(?=.{m,n}$)` or `^(?=.{m,n}c?$)`. None for any other. No text of the rest has a
    line terminator, which the point does not match either."""
    found = _LENGTH_AHEAD.match(pattern)
    if found is None or not isinstance(syntax.parse_regex(pattern), syntax.Concat):
        return None
    rest = "^" + pattern[found.end() :]
    if any(
        isinstance(part, syntax.Automaton)
        or (isinstance(part, syntax.Chars) and charset.intersect(part.chars, syntax.LINE_TERMINATORS))
        for part in syntax.parts(search_regex(rest))
    ):
        return None
    low, comma, high, last = found.groups()
    most = None if comma and not high else int(high or low)
    return LeadingLength(int(low), most, f"{last}$" if last else "", rest)


def has_assertions(regex: syntax.Regex) -> bool:
    """Whether a full match still depends on `^`, `$`, `\\b`, a lookahead or an embedded automaton."""
    return any(
        isinstance(part, syntax.Assertion | syntax.Automaton | syntax.Look) for part in syntax.parts(regex)
    )


def _with_search(regex: syntax.Regex) -> syntax.Regex:
    """Surround with "anything", branch by branch, unless an anchor at that end makes it pointless."""
    if isinstance(regex, syntax.Alternation):
        floating = [item for item in regex.items if not _touches_edge(item)]
        branches = [_with_search(item) for item in regex.items if _touches_edge(item)]
        if floating:
            branches.append(syntax.concat([syntax.ANYTHING, syntax.alternation(floating), syntax.ANYTHING]))
        return syntax.alternation(branches)
    items = parts_of(regex)
    if len(items) == 1 and isinstance(items[0], syntax.Alternation):
        return _with_search(items[0])
    first, last = (items[0], items[-1]) if items else (None, None)
    if isinstance(first, syntax.Alternation) and any(_has_edge(item, 0) for item in first.items):
        return syntax.alternation(
            [_with_search(syntax.concat([branch, *items[1:]])) for branch in first.items]
        )
    if isinstance(last, syntax.Alternation) and any(_has_edge(item, -1) for item in last.items):
        return syntax.alternation(
            [_with_search(syntax.concat([*items[:-1], branch])) for branch in last.items]
        )
    if first is None or not _has_edge(first, 0):
        items = [syntax.ANYTHING, *items]
    if last is None or not _has_edge(last, -1):
        items = [*items, syntax.ANYTHING]
    return syntax.concat(items)


def parts_of(regex: syntax.Regex) -> list[syntax.Regex]:
    """The parts of a concatenation; any other expression is its only part."""
    return list(regex.items) if isinstance(regex, syntax.Concat) else [regex]


def _touches_edge(regex: syntax.Regex) -> bool:
    """Whether an anchor stands at either end of the expression, perhaps in a nested branch only."""
    if isinstance(regex, syntax.Concat | syntax.Alternation):
        ends = regex.items if isinstance(regex, syntax.Alternation) else (*regex.items[:1], *regex.items[-1:])
        return any(map(_touches_edge, ends))
    return isinstance(regex, syntax.Assertion) and regex.kind in "^$"


def _has_edge(regex: syntax.Regex, at: int) -> bool:
    """Whether the first part (0) is `^`, or the last one (-1) `$`."""
    if isinstance(regex, syntax.Concat):
        return bool(regex.items) and _has_edge(regex.items[at], at)
    return regex == syntax.Assertion("^$"[at])


def _without_edges(regex: syntax.Regex) -> syntax.Regex:
    """Drop the anchors that the place itself satisfies."""
    if isinstance(regex, syntax.Alternation):
        return syntax.alternation([_without_edges(item) for item in regex.items])
    items = parts_of(regex)
    while items and items[0] == syntax.Assertion("^"):
        items.pop(0)
    while items and items[-1] == syntax.Assertion("$"):
        items.pop()
    return syntax.concat(items) if items else syntax.EPSILON


Piece: TypeAlias = tuple[CharSet, int, int | None]
"""(characters, fewest, most); most None means no bound."""


def flat_pieces(regex: syntax.Regex) -> list[Piece] | None:
    """The pieces of a flat expression; None for any other, or where a piece could run into what follows it."""
    pieces: list[Piece] = []
    for item in regex.items if isinstance(regex, syntax.Concat) else (regex,):
        if isinstance(item, syntax.Chars):
            pieces.append((item.chars, 1, 1))
        elif isinstance(item, syntax.Loop) and isinstance(item.item, syntax.Chars):
            pieces.append((item.item.chars, item.low, item.high))
        else:
            return None
    for index, (chars, low, high) in enumerate(pieces):
        if low == high:
            continue
        for other, least, _ in pieces[index + 1 :]:
            if charset.intersect(chars, other):
                return None
            if least:
                break
    return pieces


def pieces_expr(pieces: list[Piece], form: PlainText) -> list[Expr]:
    """The pieces in order, equal single characters joined into counts."""
    joined: list[Piece] = []
    for chars, low, high in pieces:
        if joined and joined[-1][0] == chars and high is not None and (last := joined[-1])[2] == last[1]:
            joined[-1] = (chars, last[1] + low, last[1] + high)
        else:
            joined.append((chars, low, high))
    return [repeat(form.chars(chars), low, high) for chars, low, high in joined]


def translate(pattern: str) -> Grammar:
    """The grammar of the texts that `pattern` matches from end to end."""
    rules, form = RuleBuilder(), PlainText()
    with budget():
        regex = full_regex(pattern)
        pieces = flat_pieces(regex)
        if pieces is not None:
            body = sequence([*pieces_expr(pieces, form), form.tail])
        elif (dfa := regex_dfa(regex)).is_empty():
            raise UnsupportedPattern(0, "no text matches the expression")
        else:
            body = dfa_to_expr(dfa, form, rules, "state")
    return rules.grammar(Terminal(body))


def structure_expr(regex: syntax.Regex, form: PlainText) -> Expr:
    """The words of `regex`, which has no assertion, lookahead or automaton."""
    spend()
    match regex:
        case syntax.Chars(chars):
            return form.chars(chars)
        case syntax.Concat(items):
            return sequence([structure_expr(item, form) for item in items])
        case syntax.Alternation(items):
            return choice([structure_expr(item, form) for item in items])
        case syntax.Loop(item, low, high):
            return repeat(structure_expr(item, form), low, high)
        case _:
            raise ValueError("an assertion has no text of its own")
