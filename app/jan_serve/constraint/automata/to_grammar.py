"""Automata and finite sets of words as rules of a grammar. Determinism is the point: one alternative applies at every
position, so an executor keeps a single parse stack however ambiguous the pattern was. States used once are written in
place, and loops on one state as `x*`."""

from __future__ import annotations

from collections import Counter

from jan_serve.constraint.ast import NEVER, Expr, RuleRef, choice, repeat, sequence
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.rules import RuleBuilder
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


# A few words are written out: shorter to read, and one parse stack per word does no harm.
_PLAIN_WORDS = 8


class _Branch:
    __slots__ = ("children", "is_word")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.is_word = False


def _trie(words: tuple[str, ...]) -> _Branch:
    root = _Branch()
    for word in words:
        branch = root
        for c in word:
            child = branch.children.get(c)
            if child is None:
                child = branch.children[c] = _Branch()
            branch = child
        branch.is_word = True
    return root


def words_expr(words: tuple[str, ...], form: Spelling, rules: RuleBuilder, hint: str) -> Expr:
    """One of the words, then the form's tail. NEVER without words."""
    if len(words) <= _PLAIN_WORDS:
        return choice([sequence([form.literal(word), form.tail]) for word in words]) if words else NEVER
    result: list[Expr] = []
    todo: list[tuple[_Branch, str]] = [(_trie(words), "")]
    while todo:
        branch, name = todo.pop()
        options: list[Expr] = [form.tail] if branch.is_word else []
        for c, child in branch.children.items():
            text = c
            while not child.is_word and len(child.children) == 1:
                step, child = next(iter(child.children.items()))
                text += step
            if not child.children:
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
    words: tuple[str, ...], language: Dfa, form: Spelling, rules: RuleBuilder, hint: str
) -> Expr:
    """Any word of `language` except these, then the form's tail. NEVER if there is none."""
    others = automata.complement(automata.from_words(set(words)))
    return dfa_to_expr(automata.intersect(language, others), form, rules, hint)
