"""Finite sets of words, and all words outside one: one alternative applies at every character."""

from __future__ import annotations

from jan_serve.constraint.ast import NEVER, Expr, RuleRef, choice, sequence
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.text_form import Spelling

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
