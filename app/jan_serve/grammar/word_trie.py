"""Finite sets of words, and all words outside one, as tries: one alternative applies at every character."""

from __future__ import annotations

from dataclasses import dataclass

from jan_serve.grammar import charset
from jan_serve.grammar.ast import NEVER, Choice, Expr, RuleRef, choice, sequence
from jan_serve.grammar.automata.dfa import Dfa
from jan_serve.grammar.automata.to_grammar import DfaWriter
from jan_serve.grammar.builder import RuleBuilder
from jan_serve.grammar.text_form import TextForm

# Few words are written out: shorter to read, and as many parse stacks as words do no harm.
_PLAIN_WORDS = 8
# Nested groups are parsed recursively, so deep tries continue in rules.
_RULE_EVERY = 8


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


def words_expr(words: tuple[str, ...], form: TextForm, rules: RuleBuilder, hint: str) -> Expr:
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


class OtherWords:
    """Writes "any word of a language but these", for many sets of words.

    The trie of the words and the automaton of the language are walked side by side, so the product of the two is
    never built. What follows a character that leaves the trie is shared.
    """

    def __init__(self, form: TextForm, rules: RuleBuilder) -> None:
        self._form = form
        self._rules = rules
        self._writers: dict[int, tuple[Dfa, DfaWriter]] = {}
        self._leaving: dict[tuple[int, int, str], list[Expr]] = {}

    def expr(self, words: tuple[str, ...], language: Dfa, hint: str) -> Expr:
        """Any word of `language` but these, then the form's tail. The language has a word."""
        _, writer = self._writers.setdefault(
            id(language), (language, DfaWriter(language, self._form, self._rules, hint))
        )
        walk = _Walk(language, writer, hint, [(_trie(words), 0, "")])
        root: list[Expr] = []
        while walk.todo:
            branch, state, name = walk.todo.pop()
            expr = self._body(walk, branch, state, 0)
            if name:
                self._rules.fill(name, expr)
            else:
                root.append(expr)
        writer.finish()
        return root[0]

    def _body(self, walk: _Walk, branch: _Branch, state: int, depth: int) -> Expr:
        options: list[Expr] = []
        for c, child in branch.children.items():
            target = walk.language.step(state, c)
            if target not in walk.writer.edges:
                continue
            if depth < _RULE_EVERY or not child.children:
                onward = self._body(walk, child, target, depth + 1)
            else:
                name = self._rules.reserve(walk.hint)
                walk.todo.append((child, target, name))
                onward = RuleRef(name)
            if onward != NEVER:
                options.append(sequence([self._form.literal(c), onward]))
        options += self._leave(walk, state, "".join(sorted(branch.children)))
        if walk.writer.is_accepting(state) and not branch.is_word:
            options.append(self._form.tail)
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _leave(self, walk: _Walk, state: int, excluded: str) -> list[Expr]:
        """Any character but these, then the rest of the language."""
        key = (id(walk.language), state, excluded)
        known = self._leaving.get(key)
        if known is None:
            others = charset.complement(charset.of_chars(excluded))
            known = []
            for target, chars in walk.writer.edges[state].items():
                left = charset.intersect(chars, others)
                if left:
                    expr = sequence([self._form.chars(left), walk.writer.reference(target)])
                    label = "not-" + "".join(c for c in excluded if c.isalnum())
                    known.append(self._rules.define(label, expr))
            self._leaving[key] = known
        return known


@dataclass(frozen=True, slots=True)
class _Walk:
    """One pass over a trie: (branch, state of the language, rule to fill) are still to be written."""

    language: Dfa
    writer: DfaWriter
    hint: str
    todo: list[tuple[_Branch, int, str]]
