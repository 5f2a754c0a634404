"""What a grammar means, by its definition: slow, complete, and written without the recognizer. Plus small grammars and
texts to judge with it."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from jan_serve.constraint import ast


def texts(alphabet: str, longest: int) -> list[str]:
    """Every text of these characters, up to a length."""
    return ["".join(word) for length in range(longest + 1) for word in product(alphabet, repeat=length)]


def belongs(grammar: ast.Grammar, text: str) -> bool:
    """Whether the whole text belongs to the grammar, which is not left-recursive."""
    return len(text) in _ends(ast.RuleRef(grammar.root), text, 0, grammar.rules)


def language(grammar: ast.Grammar, alphabet: str, longest: int) -> set[str]:
    """The texts of a grammar among the short ones."""
    return {text for text in texts(alphabet, longest) if belongs(grammar, text)}


def _ends(expr: ast.Expr, text: str, at: int, rules: dict[str, ast.Expr]) -> set[int]:
    """Where a text of `expr` that begins at `at` may end."""
    if isinstance(expr, ast.Literal | ast.Special):
        return {at + len(expr.text)} if text.startswith(expr.text, at) else set()
    if isinstance(expr, ast.CharClass):
        inside = at < len(text) and any(low <= ord(text[at]) <= high for low, high in expr.chars)
        return {at + 1} if inside else set()
    if isinstance(expr, ast.RuleRef):
        return _ends(rules[expr.name], text, at, rules)
    if isinstance(expr, ast.Terminal):
        return _ends(expr.item, text, at, rules)
    if isinstance(expr, ast.Until):
        opening, closing = expr.section or ("", "")
        if opening and text.startswith(opening, at):
            end = text.find(closing, at + len(opening)) + len(closing)
            ends = bool(closing) and end >= at + len(opening + closing) and text.startswith(expr.stop, end)
            return {end + len(expr.stop)} if ends else set()
        stop = text.find(expr.stop, at)
        most = len(text) if expr.high is None else expr.high
        return {stop + len(expr.stop)} if stop >= 0 and expr.low <= stop - at <= most else set()
    if isinstance(expr, ast.Choice):
        return set[int]().union(*(_ends(item, text, at, rules) for item in expr.items))
    if isinstance(expr, ast.Sequence):
        found = {at}
        for item in expr.items:
            found = {end for start in found for end in _ends(item, text, start, rules)}
        return found
    assert isinstance(expr, ast.Repeat)
    return _repeated(expr, text, at, rules)


def _repeated(expr: ast.Repeat, text: str, at: int, rules: dict[str, ast.Expr]) -> set[int]:
    reached = {at}
    found = set(reached) if expr.low == 0 else set[int]()
    # More rounds than this reach nothing new: each adds a character, or none.
    most = expr.low + len(text) + 1 if expr.high is None else expr.high
    for done in range(1, most + 1):
        reached = {end for start in reached for end in _ends(expr.item, text, start, rules)}
        if done >= expr.low:
            found |= reached
    return found


def _repeat(item: ast.Expr, low: int, more: int | None) -> ast.Repeat:
    return ast.Repeat(item, low, None if more is None else low + more)


def _expressions(leaves: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    def larger(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
        return st.one_of(
            st.builds(ast.Sequence, st.lists(inner, max_size=3).map(tuple)),
            st.builds(ast.Choice, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(ast.Terminal, inner),
            st.builds(_repeat, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
        )

    return st.recursive(leaves, larger, max_leaves=6)


_LEAVES: st.SearchStrategy[ast.Expr] = st.sampled_from(
    [
        ast.Literal("a"),
        ast.Literal("ab"),
        ast.Literal("b"),
        ast.Special("b"),
        ast.CharClass(((97, 98),)),
        ast.CharClass(((98, 98),)),
    ]
)
EXPRESSIONS = _expressions(_LEAVES)
"""Expressions over `a` and `b` that refer to no rule."""


def _grammar(root: ast.Expr, other: ast.Expr) -> ast.Grammar:
    return ast.Grammar({"root": root, "other": other})


GRAMMARS: st.SearchStrategy[ast.Grammar] = st.builds(
    _grammar, _expressions(_LEAVES | st.just(ast.RuleRef("other"))), EXPRESSIONS
)
"""Grammars over `a` and `b` that are not recursive."""
