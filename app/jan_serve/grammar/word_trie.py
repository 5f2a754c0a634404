"""Finite sets of words, and all words outside one, as tries: one alternative applies at every character."""

from __future__ import annotations

from jan_serve.grammar import charset
from jan_serve.grammar.ast import NEVER, Expr, RuleRef, choice, sequence
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
                ref = rules.reserve(hint)
                todo.append((child, ref))
                options.append(sequence([form.literal(text), RuleRef(ref)]))
        if name:
            rules.fill(name, choice(options))
        else:
            result.append(choice(options))
    return result[0]


def other_words_expr(words: tuple[str, ...], rest: Expr, form: TextForm, rules: RuleBuilder, hint: str) -> Expr:
    """Any word but these, then the form's tail; `rest` is any text with its tail."""
    result: list[Expr] = []
    todo: list[tuple[_Branch, str]] = [(_trie(words), "")]

    def body(branch: _Branch, depth: int) -> Expr:
        if not branch.children:
            # A word ends here: one more character makes it another word.
            return sequence([form.chars(charset.ANY), rest])
        options: list[Expr] = []
        for c, child in branch.children.items():
            if depth < _RULE_EVERY:
                onward = body(child, depth + 1)
            else:
                name = rules.reserve(hint)
                todo.append((child, name))
                onward = RuleRef(name)
            options.append(sequence([form.literal(c), onward]))
        others = charset.complement(charset.of_chars("".join(branch.children)))
        options.append(sequence([form.chars(others), rest]))
        if not branch.is_word:
            options.append(form.tail)
        return choice(options)

    while todo:
        branch, name = todo.pop()
        expr = body(branch, 0)
        if name:
            rules.fill(name, expr)
        else:
            result.append(expr)
    return result[0]
