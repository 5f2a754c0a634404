"""This module writes strings with length bounds that no automaton can count: one has a state for each length. Of a
pattern that ends in any number of the same characters, as `^data:image/png;base64,[0-9A-Za-z+/=]*$` does, only what
comes before the tail is counted, and the tail is a repetition. A URI of a bounded length, as pydantic asks for
(`AnyUrl`: at most 2,083 characters), would need 180 states for each character. So each part of the URI has a bound of
its own, which together stay within the whole: narrower than the set, never wider. IP literals and user names are left
out, and escapes by percent below 1,000 characters."""

from __future__ import annotations

from typing import Final

from jan_serve.constraint.ast import NEVER, Expr, choice, repeat, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.language import structure_expr
from jan_serve.constraint.regex.syntax import parse_regex
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import Spelling

_MAX_PLACES: Final = 2_000
_RULE_EVERY: Final = 8


class LongTails:
    """The words of an automaton of `low` to `high` characters. levels: the states that words reach, by length."""

    def __init__(
        self, edges: dict[int, dict[int, CharSet]], accepting: frozenset[int], levels: list[list[int]]
    ):
        self._edges = edges
        self._accepting = accepting
        self._levels = levels

    def is_empty(self, low: int, high: int) -> bool:
        """Whether no word has such a length."""
        return not any(
            low <= read <= high or (read < low and state in self._edges[state])
            for read, states in enumerate(self._levels[: high + 1])
            for state in states
            if state in self._accepting
        )

    def expr(self, low: int, high: int, form: Spelling, rules: RuleBuilder, hint: str) -> Expr:
        """The words of such a length, each followed by the form's tail. NEVER if there is none."""
        following: dict[int, Expr] = {}
        for read in range(min(len(self._levels) - 1, high), -1, -1):
            following = {
                state: self._from(state, low - read, high - read, form, following)
                for state in self._levels[read]
            }
            if read % _RULE_EVERY == 1:
                following = {
                    state: expr if expr == NEVER else rules.define(hint, expr, complete=True)
                    for state, expr in following.items()
                }
        return following.get(0, NEVER)

    def _from(self, state: int, low: int, high: int, form: Spelling, following: dict[int, Expr]) -> Expr:
        """What follows a state, if it is low to high characters long."""
        own = self._edges[state].get(state)
        if own is not None:
            return sequence([repeat(form.chars(own), max(low, 0), high), form.tail])
        options = [form.tail] if state in self._accepting and low <= 0 else []
        options += [
            sequence([form.chars(chars), following[target]])
            for target, chars in self._edges[state].items()
            if target in following
        ]
        return choice(option for option in options if option != NEVER)


def long_tails(dfa: Dfa) -> LongTails | None:
    """The automaton, if words go on without end in single states only that they never leave."""
    edges = dfa.live_edges()
    if any(state in targets and len(targets) > 1 for state, targets in edges.items()):
        return None
    levels = [[0]] if 0 in edges else []
    count = 1
    while levels and levels[-1]:
        onward = (target for state in levels[-1] if state not in edges[state] for target in edges[state])
        levels.append(list(dict.fromkeys(onward)))
        count += len(levels[-1])
        spend(1 + len(levels[-1]) // 4)
        if len(levels) > len(edges) + 1 or count > _MAX_PLACES:
            return None
    return LongTails(edges, dfa.accepting, levels)


SHORTEST: Final = 40
"""The least upper bound that leaves room for all parts."""
LARGEST_LOW: Final = 4
_SCHEME: Final = 10
_HOST: Final = 255
_PORT: Final = 5
_FRAGMENT: Final = 64
_ESCAPES_FROM: Final = 1_000
_NAMED: Final = "-._~!$&'()*+,;=a-zA-Z0-9"
_IN_PATH: Final = f"{_NAMED}:@"
_PATH: Final = f"{_IN_PATH}/"
_QUERY: Final = f"{_PATH}?"


def bounded_uri(form: Spelling, high: int) -> Expr:
    """URIs (RFC 3986) of LARGEST_LOW to `high` characters at most, which is SHORTEST or more, then the form's tail."""
    host, fragment = min(_HOST, high * 3 // 10), min(_FRAGMENT, high // 16)
    # The marks are `://`, `:` of the port, `/`, `?` and `#`.
    left = high - _SCHEME - host - _PORT - fragment - 7
    with_escapes = high >= _ESCAPES_FROM
    units = left // 3 if with_escapes else left
    path = units * 3 // 5

    def some(chars: str, most: int) -> str:
        """Characters, or escapes of three characters."""
        unit = f"(?:[{chars}]|%[0-9a-fA-F][0-9a-fA-F])" if with_escapes else f"[{chars}]"
        return f"{unit}{{0,{most}}}"

    with_host = f"//[{_NAMED}]{{0,{host}}}(?::[0-9]{{0,{_PORT}}})?(?:/{some(_PATH, path - 1)})?"
    # Two characters at least after the scheme, as with a host.
    without = f"[{_IN_PATH}][{_IN_PATH}]{some(_PATH, path - 2)}"
    scheme = f"[a-zA-Z][a-zA-Z0-9+.-]{{0,{_SCHEME - 1}}}:"
    end = f"(?:\\?{some(_QUERY, units - path)})?(?:#[{_QUERY}]{{0,{fragment}}})?"
    return sequence([structure_expr(parse_regex(f"{scheme}(?:{with_host}|{without}){end}"), form), form.tail])
