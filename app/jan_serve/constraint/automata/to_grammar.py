"""Prints a DFA as right-linear grammar rules.

Determinism is the point: one alternative applies at every position, so an executor keeps a single parse stack however
ambiguous the pattern was. States used once are written in place, loops on one state as `x*`, and chains that count
(`x{0,255}`) as repetitions.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from jan_serve.constraint import charset
from jan_serve.constraint.ast import NEVER, Expr, RuleRef, choice, repeat, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import spend
from jan_serve.constraint.text_form import Spelling

# A state that is written in place nests a group; llama.cpp parses groups recursively.
_MAX_INLINE_DEPTH = 12
# Edges of a state in an optional run: its own step, and what may follow.
_MAX_RUN_EDGES = 4


class _Run(NamedTuple):
    """A chain of states that count `length` of the same characters. next: its second state."""

    chars: CharSet
    length: int
    next: int
    end: int


class _Link(NamedTuple):
    """The first step of a run. onward: where the next step leads; None at the end."""

    target: int
    chars: CharSet
    onward: int | None


def dfa_to_expr(dfa: Dfa, form: Spelling, rules: RuleBuilder, hint: str) -> Expr:
    """The words of `dfa`, each followed by the form's tail. NEVER if there is no word."""
    return DfaWriter(dfa, form, rules, hint).start()


class DfaWriter:
    """Writes the states of one DFA as rules, on demand; `finish` writes the requested rules."""

    def __init__(self, dfa: Dfa, form: Spelling, rules: RuleBuilder, hint: str) -> None:
        self._dfa = dfa
        self._form = form
        self._rules = rules
        self._hint = hint
        self._live = dfa.live_states()
        self.edges = self._live_edges()
        """Per live state, the characters that lead to each live state."""
        self._uses = self._count_uses()
        self._optional: dict[int, _Run | None] = {}
        self._names: dict[int, str] = {}
        self._todo: list[int] = []

    def _live_edges(self) -> dict[int, dict[int, CharSet]]:
        """Per live state, the characters that lead to each live state."""
        symbol_sets = self._dfa.symbol_sets()
        edges: dict[int, dict[int, CharSet]] = {}
        for state in self._live:
            spend(1 + len(symbol_sets) // 8)
            grouped: dict[int, list[CharSet]] = {}
            for symbol, target in enumerate(self._dfa.table[state]):
                if target in self._live:
                    grouped.setdefault(target, []).append(symbol_sets[symbol])
            edges[state] = {target: charset.union(*sets) for target, sets in grouped.items()}
        return edges

    def _count_uses(self) -> Counter[int]:
        uses: Counter[int] = Counter({0: 1})
        for state, targets in self.edges.items():
            uses.update(target for target in targets if target != state)
        return uses

    def start(self) -> Expr:
        """The words from the start state on, with all rules written."""
        if 0 not in self._live:
            return NEVER
        in_loop = self._uses[0] > 1
        expr = self.reference(0) if in_loop else self._body(0, 0)
        self.finish()
        return expr

    def finish(self) -> None:
        """Write the rules of all states that were referred to."""
        while self._todo:
            state = self._todo.pop()
            self._rules.fill(self._names[state], self._body(state, 0))

    def begins_with_any(self, chars: CharSet) -> bool:
        """Whether every text of these characters is the beginning of a word."""
        found, todo = {0}, [0]
        while todo:
            targets = self.edges.get(todo.pop(), {})
            spend(1 + len(targets))
            if charset.intersect(charset.complement(charset.union(*targets.values())), chars):
                return False
            new = {target for target, taken in targets.items() if charset.intersect(taken, chars)} - found
            found |= new
            todo += new
        return True

    def is_accepting(self, state: int) -> bool:
        """Whether a word may end in the state."""
        return state in self._dfa.accepting

    def reference(self, state: int) -> Expr:
        """A rule for what follows a live state, tail included."""
        name = self._names.get(state)
        if name is None:
            name = self._names[state] = self._rules.reserve(self._hint, complete=True)
            self._todo.append(state)
        return RuleRef(name)

    def _continue(self, state: int, depth: int) -> Expr:
        """The rest of the words from `state` on."""
        if self._uses[state] > 1 or depth >= _MAX_INLINE_DEPTH:
            if not self.edges[state]:
                return self._form.tail
            run = self._optional_run(state)
            if run is not None and not self.edges[run.end]:
                return sequence([repeat(self._form.chars(run.chars), 0, run.length), self._form.tail])
            return self.reference(state)
        return self._body(state, depth)

    def _body(self, state: int, depth: int) -> Expr:
        parts: list[Expr] = []
        while True:
            targets = self.edges[state]
            loop = targets.get(state)
            if loop is not None:
                parts.append(repeat(self._form.chars(loop), 0, None))
            onward = [(target, chars) for target, chars in targets.items() if target != state]
            final = state in self._dfa.accepting
            if (run := self._optional_run(state)) is not None:
                parts.append(repeat(self._form.chars(run.chars), 0, run.length))
                state = run.end
            elif (run := self._counting_run(state)) is not None:
                parts.append(repeat(self._form.chars(run.chars), run.length, run.length))
                state = run.end
            elif len(onward) == 1 and not final:
                target, chars = onward[0]
                parts.append(self._form.chars(chars))
                if self._uses[target] > 1:
                    parts.append(self._continue(target, depth))
                    return sequence(parts)
                state = target
            else:
                break
        options: list[Expr] = [self._form.tail] if final else []
        options += [
            sequence([self._form.chars(chars), self._continue(target, depth + 1)]) for target, chars in onward
        ]
        parts.append(choice(options))
        return sequence(parts)

    def _counting_run(self, state: int) -> _Run | None:
        """A chain of states that only count the same characters, and of which none but the last accepts."""
        chars: CharSet | None = None
        first, length = state, 0
        while state not in self._dfa.accepting and len(self.edges[state]) == 1:
            target, step = next(iter(self.edges[state].items()))
            if target == state or self._uses[target] > 1 or (chars is not None and step != chars):
                break
            first = target if length == 0 else first
            chars, state, length = step, target, length + 1
        return None if chars is None or length < 2 else _Run(chars, length, first, state)

    def _optional_run(self, state: int) -> _Run | None:
        """A chain of states that count the same characters, in each of which the same may follow.

        What follows has a use in every state, so it is written once, wherever a word enters the chain.
        """
        path: list[tuple[int, _Link]] = []
        found: _Run | None = None
        at: int | None = state
        while at is not None:
            if at in self._optional:
                found = self._optional[at]
                break
            self._optional[at] = None  # also where the chain comes back to itself
            link = self._link(at)
            if link is None:
                break
            path.append((at, link))
            at = None if link.onward is None else link.target
        for own, link in reversed(path):
            if link.onward is None:
                found = _Run(link.chars, 1, link.target, link.target)
            elif found is not None and found.next == link.onward:
                found = _Run(link.chars, found.length + 1, link.target, found.end)
            else:
                found = None
            self._optional[own] = found
        run = self._optional[state]
        return run if run is not None and run.length > 1 else None

    def _link(self, state: int) -> _Link | None:
        """A step of an optional run: the next state has the same edges but for its own step, or the run's end none."""
        targets = self.edges[state]
        if state in targets or not 0 < len(targets) <= _MAX_RUN_EDGES:
            return None
        for target, chars in targets.items():
            spend()
            theirs = self.edges[target]
            if target in theirs or (target in self._dfa.accepting) != (state in self._dfa.accepting):
                continue
            rest = {other: taken for other, taken in targets.items() if other != target}
            if theirs == rest:
                return _Link(target, chars, None)
            onward = [other for other in theirs if theirs[other] != rest.get(other)]
            if len(theirs) == len(targets) and len(onward) == 1 and theirs[onward[0]] == chars:
                return _Link(target, chars, onward[0])
        return None
