"""Automata and finite sets of words as rules of a grammar. Determinism is the point: one alternative applies at every
position, so an executor keeps a single parse stack however ambiguous the pattern was. States used once are written in
place, and loops on one state as `x*`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from jan_serve.constraint.ast import NEVER, Expr, RuleRef, choice, repeat, sequence
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import spend
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import PlainText

# A state that is written in place nests a group; llama.cpp parses groups recursively.
_MAX_INLINE_DEPTH = 12


def dfa_to_expr(dfa: Dfa, form: PlainText, rules: RuleBuilder, hint: str) -> Expr:
    """The words of `dfa`, each followed by the form's tail. NEVER if there is no word."""
    return _Writer(dfa, form, rules, hint).start()


class _Writer:
    """Writes the states of one DFA as rules, on demand."""

    def __init__(self, dfa: Dfa, form: PlainText, rules: RuleBuilder, hint: str) -> None:
        self._dfa = dfa
        self._form = form
        self._rules = rules
        self._hint = hint
        self._edges = dfa.live_edges()
        onward = (target for state, targets in self._edges.items() for target in targets if target != state)
        self._uses = Counter([0, *onward])
        self._names: dict[int, str] = {}
        self._todo: list[int] = []

    def start(self) -> Expr:
        """The words from the start state on, with all rules written."""
        if 0 not in self._edges:
            return NEVER
        expr = self._reference(0) if self._uses[0] > 1 else self._body(0, 0)
        while self._todo:
            state = self._todo.pop()
            self._rules.fill(self._names[state], self._body(state, 0))
        return expr

    def _reference(self, state: int) -> Expr:
        """A rule for what follows a live state, tail included."""
        name = self._names.get(state)
        if name is None:
            name = self._names[state] = self._rules.reserve(self._hint, complete=True)
            self._todo.append(state)
        return RuleRef(name)

    def _continue(self, state: int, depth: int) -> Expr:
        """The rest of the words from `state` on."""
        if self._uses[state] > 1 or depth >= _MAX_INLINE_DEPTH:
            return self._reference(state) if self._edges[state] else self._form.tail
        return self._body(state, depth)

    def _body(self, state: int, depth: int) -> Expr:
        parts: list[Expr] = []
        while True:
            targets = self._edges[state]
            loop = targets.get(state)
            if loop is not None:
                parts.append(repeat(self._form.chars(loop), 0, None))
            onward = [(target, chars) for target, chars in targets.items() if target != state]
            final = state in self._dfa.accepting
            if len(onward) != 1 or final:
                break
            [(state, chars)] = onward
            parts.append(self._form.chars(chars))
            if self._uses[state] > 1:
                return sequence([*parts, self._continue(state, depth)])
        options: list[Expr] = [self._form.tail] if final else []
        for target, chars in onward:
            options.append(sequence([self._form.chars(chars), self._continue(target, depth + 1)]))
        return sequence([*parts, choice(options)])


# A few words are written out: shorter to read, and one parse stack per word does no harm.
_PLAIN_WORDS = 8


class _Branch(dict[str, "_Branch"]):
    """What follows a beginning of words, by the next character."""

    is_word = False


def _trie(words: tuple[str, ...]) -> _Branch:
    root = _Branch()
    for word in words:
        branch = root
        for c in word:
            branch = branch.setdefault(c, _Branch())
        branch.is_word = True
    return root


def words_expr(words: tuple[str, ...], form: PlainText, rules: RuleBuilder, hint: str) -> Expr:
    """One of the words, then the form's tail. NEVER without words."""
    if len(words) <= _PLAIN_WORDS:
        return choice([sequence([form.literal(word), form.tail]) for word in words]) if words else NEVER
    result: list[Expr] = []
    todo: list[tuple[_Branch, str]] = [(_trie(words), "")]
    while todo:
        branch, name = todo.pop()
        options: list[Expr] = [form.tail] if branch.is_word else []
        for text, child in branch.items():
            while not child.is_word and len(child) == 1:
                [(step, child)] = child.items()
                text += step
            if not child:
                options.append(sequence([form.literal(text), form.tail]))
            else:
                ref = rules.reserve(hint, complete=True)
                todo.append((child, ref))
                options.append(sequence([form.literal(text), RuleRef(ref)]))
        if name:
            rules.fill(name, choice(options))
        else:
            result.append(choice(options))
    return result[0]


def other_words_expr(
    words: tuple[str, ...], language: Dfa, form: PlainText, rules: RuleBuilder, hint: str
) -> Expr:
    """Any word of `language` except these, then the form's tail. NEVER if there is none."""
    others = automata.complement(automata.from_words(set(words)))
    return dfa_to_expr(automata.intersect(language, others), form, rules, hint)


_MAX_PLACES: Final = 2_000
_TAIL_RULE_EVERY: Final = 8


class LongTails:
    """The words of an automaton of `low` to `high` characters, which no automaton can count: one has a state for each
    length. Of a pattern that ends in any number of the same characters, as `^data:image/png;base64,[0-9A-Za-z+/=]*$`
    does, only what comes before the tail is counted, and the tail is a repetition. levels: the states that words reach,
    by length."""

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

    def expr(self, low: int, high: int, form: PlainText, rules: RuleBuilder, hint: str) -> Expr:
        """The words of such a length, each followed by the form's tail. NEVER if there is none."""
        following: dict[int, Expr] = {}
        for read in range(min(len(self._levels) - 1, high), -1, -1):
            following = {
                state: self._from(state, low - read, high - read, form, following)
                for state in self._levels[read]
            }
            if read % _TAIL_RULE_EVERY == 1:
                following = {
                    state: expr if expr == NEVER else rules.define(hint, expr, complete=True)
                    for state, expr in following.items()
                }
        return following.get(0, NEVER)

    def _from(self, state: int, low: int, high: int, form: PlainText, following: dict[int, Expr]) -> Expr:
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
