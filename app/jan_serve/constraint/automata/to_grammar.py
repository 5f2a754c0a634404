"""Prints a DFA as right-linear grammar rules.

Determinism is the point: one alternative applies at every position, so an executor keeps a single parse stack however
ambiguous the pattern was. States used once are written in place, and loops on one state as `x*`.
"""

from __future__ import annotations

from collections import Counter

from jan_serve.constraint.ast import NEVER, Expr, RuleRef, choice, repeat, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.text_form import Spelling

# A state that is written in place nests a group; llama.cpp parses groups recursively.
_MAX_INLINE_DEPTH = 12


def dfa_to_expr(dfa: Dfa, form: Spelling, rules: RuleBuilder, hint: str) -> Expr:
    """The words of `dfa`, each followed by the form's tail. NEVER if there is no word."""
    return _Writer(dfa, form, rules, hint).start()


class _Writer:
    """Writes the states of one DFA as rules, on demand."""

    def __init__(self, dfa: Dfa, form: Spelling, rules: RuleBuilder, hint: str) -> None:
        self._dfa = dfa
        self._form = form
        self._rules = rules
        self._hint = hint
        self._edges = dfa.live_edges()
        self._uses = self._count_uses()
        self._names: dict[int, str] = {}
        self._todo: list[int] = []

    def _count_uses(self) -> Counter[int]:
        uses: Counter[int] = Counter({0: 1})
        for state, targets in self._edges.items():
            uses.update(target for target in targets if target != state)
        return uses

    def start(self) -> Expr:
        """The words from the start state on, with all rules written."""
        if 0 not in self._edges:
            return NEVER
        in_loop = self._uses[0] > 1
        expr = self._reference(0) if in_loop else self._body(0, 0)
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
            if len(onward) == 1 and not final:
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
