"""Length bounds of patterns that end in any number of the same characters, as `^data:image/png;base64,[0-9A-Za-z+/=]*$`
does.

An automaton that counts beside the pattern's has a state for each length. Here only what comes before the tail is
counted, and the tail is a repetition.
"""

from __future__ import annotations

from typing import Final

from jan_serve.constraint import charset
from jan_serve.constraint.ast import NEVER, Expr, choice, repeat, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import spend
from jan_serve.constraint.text_form import TextForm

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

    def expr(self, low: int, high: int, form: TextForm, rules: RuleBuilder, hint: str) -> Expr:
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

    def _from(self, state: int, low: int, high: int, form: TextForm, following: dict[int, Expr]) -> Expr:
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
    live = dfa.live_states()
    sets = dfa.symbol_sets()
    edges: dict[int, dict[int, CharSet]] = {}
    for state in live:
        targets: dict[int, list[CharSet]] = {}
        for symbol, target in enumerate(dfa.table[state]):
            if target in live:
                targets.setdefault(target, []).append(sets[symbol])
        edges[state] = {target: charset.union(*chars) for target, chars in targets.items()}
        if state in targets and len(targets) > 1:
            return None
    levels = [[0]] if 0 in live else []
    count = 1
    while levels and levels[-1]:
        onward = (target for state in levels[-1] if state not in edges[state] for target in edges[state])
        levels.append(list(dict.fromkeys(onward)))
        count += len(levels[-1])
        spend(1 + len(levels[-1]) // 4)
        if len(levels) > len(live) + 1 or count > _MAX_PLACES:
            return None
    return LongTails(edges, dfa.accepting, levels)
