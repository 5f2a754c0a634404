"""Finite sets of words, and all words outside one, as tries: one alternative applies at every character."""

from __future__ import annotations

import msgspec

from jan_serve.constraint import charset
from jan_serve.constraint.ast import NEVER, Choice, Expr, RuleRef, choice, sequence
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import DfaWriter
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.text_form import Spelling

# A few words are written out: shorter to read, and one parse stack per word does no harm.
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


class OtherWords:
    """Writes "any word of a language except these", for many sets of words.

    The trie of the words and the automaton of the language are walked side by side, so the product of the two is
    never built. The rule after a character that leaves the trie is shared, and so is the end of a word from the
    position on where no other word has the same beginning: one schema repeats the same names.
    """

    def __init__(self, form: Spelling, rules: RuleBuilder) -> None:
        self._form = form
        self._rules = rules
        self._writers: dict[int, tuple[Dfa, DfaWriter]] = {}
        self._leaving: dict[tuple[int, int, str], list[Expr]] = {}
        self._ends: dict[tuple[int, int, str], Expr] = {}

    def expr(self, words: tuple[str, ...], language: Dfa, hint: str) -> Expr:
        """Any word of `language` except these, then the form's tail. The language has a word."""
        known = self._writers.get(id(language))
        if known is None:
            writer = DfaWriter(language, self._form, self._rules, hint)
            known = self._writers[id(language)] = (language, writer)
        walk = _Walk(*known, hint, [(sorted(set(words)), 0, 0, "")])
        root: list[Expr] = []
        while walk.todo:
            own, position, state, name = walk.todo.pop()
            expr = self._branch(walk, own, position, state, 0)
            if name:
                self._rules.fill(name, expr)
            else:
                root.append(expr)
        walk.writer.finish()
        return root[0]

    def _branch(self, walk: _Walk, words: list[str], position: int, state: int, depth: int) -> Expr:
        """The branch where `words`, which agree up to `position`, continue or end."""
        is_word = len(words[0]) == position
        options: list[Expr] = []
        excluded: list[str] = []
        start = int(is_word)
        while start < len(words):
            c = words[start][position]
            end = start + 1
            while end < len(words) and words[end][position] == c:
                end += 1
            excluded.append(c)
            target = walk.language.step(state, c)
            if target in walk.writer.edges:
                group = words[start:end]
                if len(group) == 1:
                    onward = self._end(walk, group[0][position + 1 :], target)
                elif depth < _RULE_EVERY:
                    onward = self._branch(walk, group, position + 1, target, depth + 1)
                else:
                    name = self._rules.reserve(walk.hint)
                    walk.todo.append((group, position + 1, target, name))
                    onward = RuleRef(name)
                if onward != NEVER:
                    options.append(sequence([self._form.literal(c), onward]))
            start = end
        options += self._leave(walk, state, "".join(excluded))
        if walk.writer.is_accepting(state) and not is_word:
            options.append(self._form.tail)
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _end(self, walk: _Walk, suffix: str, state: int) -> Expr:
        """Anything but `suffix`, from a place that only one word reaches."""
        key = (id(walk.language), state, suffix)
        known = self._ends.get(key)
        if known is None:
            steps = [state]
            for c in suffix:
                steps.append(walk.language.step(steps[-1], c))
            known = NEVER
            for index in range(len(suffix), -1, -1):
                if steps[index] not in walk.writer.edges:
                    continue
                excluded = suffix[index : index + 1]
                options = [sequence([self._form.literal(excluded), known])] if known != NEVER else []
                options += self._leave(walk, steps[index], excluded)
                if excluded and walk.writer.is_accepting(steps[index]):
                    options.append(self._form.tail)
                known = options[0] if len(options) == 1 else Choice(tuple(options))
                if index % _RULE_EVERY == 0 and known != NEVER and excluded:
                    known = self._rules.define(f"not-{suffix[index:]}", known, complete=True)
            self._ends[key] = known
        return known

    def _leave(self, walk: _Walk, state: int, excluded: str) -> list[Expr]:
        """Any character but these, then the rest of the language."""
        key = (id(walk.language), state, excluded)
        known = self._leaving.get(key)
        if known is None:
            others = charset.complement(charset.of_chars(excluded))
            written: list[Expr] = []
            for target, chars in walk.writer.edges[state].items():
                left = charset.intersect(chars, others)
                if left:
                    expr = sequence([self._form.chars(left), walk.writer.reference(target)])
                    label = "except-" + "".join(c for c in excluded if c.isalnum())
                    written.append(self._rules.define(label, expr, complete=True))
            known = self._leaving[key] = written
        return known


class _Walk(msgspec.Struct, frozen=True):
    """One pass over a trie: (words, characters read, state of the language, rule to fill) are still to be written."""

    language: Dfa
    writer: DfaWriter
    hint: str
    todo: list[tuple[list[str], int, int, str]]
