"""This module makes the rules of a parsed grammar fit for executors.

It checks that every name is defined, no rule is left-recursive and chains stay short. It replaces expressions that
grow exponentially in executors by equivalent ones: repetitions of possibly empty expressions, and long lists of
words.
"""

from __future__ import annotations

from jan_serve.constraint.ast import (
    Choice,
    Expr,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
    choice,
    repeat,
    sequence,
)
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.limits import MAX_LEFT_CHAIN, spend
from jan_serve.constraint.text_form import PlainText
from jan_serve.constraint.transform import references
from jan_serve.constraint.word_trie import words_expr
from jan_serve.errors import InvalidGrammar


def check_rules(rules: dict[str, Expr], lines: dict[str, int]) -> None:
    """Raises InvalidGrammar, with the line of the rule at fault."""
    for name, expr in rules.items():
        for used in sorted(references(expr)):
            if used not in rules:
                raise InvalidGrammar(f"the rule {used[:80]!r} is not defined", lines[name])
    nullable = nullable_rules(rules)
    first = {name: _leading(expr, nullable) for name, expr in rules.items()}
    _check_left_edges(first, lines)


def nullable_rules(rules: dict[str, Expr]) -> set[str]:
    """The rules that the empty text satisfies."""
    users: dict[str, list[str]] = {}
    for name, expr in rules.items():
        for used in references(expr):
            users.setdefault(used, []).append(name)
    found: set[str] = set()
    changed = set(rules)
    while changed:
        fresh = {name for name in changed if name not in found and is_nullable(rules[name], found)}
        found |= fresh
        changed = {user for name in fresh for user in users.get(name, ())}
    return found


def is_nullable(expr: Expr, rules: set[str]) -> bool:
    """Whether the empty text satisfies the expression, given the rules that it satisfies."""
    if isinstance(expr, RuleRef):
        return expr.name in rules
    if isinstance(expr, Sequence):
        return all(is_nullable(item, rules) for item in expr.items)
    if isinstance(expr, Choice):
        return any(is_nullable(item, rules) for item in expr.items)
    if isinstance(expr, Terminal):
        return is_nullable(expr.item, rules)
    return isinstance(expr, Repeat) and (expr.low == 0 or is_nullable(expr.item, rules))


def _leading(expr: Expr, nullable: set[str]) -> set[str]:
    """The rules that may stand at the very beginning."""
    if isinstance(expr, RuleRef):
        return {expr.name}
    if isinstance(expr, Choice):
        return set[str]().union(*(_leading(item, nullable) for item in expr.items))
    if isinstance(expr, Repeat | Terminal):
        return _leading(expr.item, nullable)
    found: set[str] = set()
    if isinstance(expr, Sequence):
        for item in expr.items:
            found |= _leading(item, nullable)
            if not is_nullable(item, nullable):
                break
    return found


def _check_left_edges(first: dict[str, set[str]], lines: dict[str, int]) -> None:
    """Depth-first over "starts with": a cycle is left recursion, and llama.cpp recurses as deep as a chain is long."""
    depth: dict[str, int] = {}
    for origin in first:
        path: list[tuple[str, list[str]]] = [] if origin in depth else [(origin, sorted(first[origin]))]
        open_names = {origin}
        while path:
            name, rest = path[-1]
            if rest:
                target = rest.pop()
                if target in open_names:
                    raise InvalidGrammar(f"the rule {target[:80]!r} starts with itself", lines[target])
                if target not in depth:
                    path.append((target, sorted(first[target])))
                    open_names.add(target)
                continue
            path.pop()
            open_names.discard(name)
            depth[name] = 1 + max((depth[target] for target in first[name]), default=0)
            if depth[name] > MAX_LEFT_CHAIN:
                reason = f"the rule {name[:80]!r} starts a chain of more than {MAX_LEFT_CHAIN} rules"
                raise InvalidGrammar(reason, lines[name])


# From so many words on, one stack per word costs more than a trie.
_MANY_WORDS = 16


def normalise(grammar: Grammar) -> Grammar:
    """The same language; `(x?){0,n}` has become `x{0,n}`, and long alternations of literals a trie of rules.

    The grammar holds no `Terminal`: GBNF writes none.
    """
    builder = RuleBuilder()
    for name in grammar.rules:
        builder.adopt(name)
    rewriter = _Rewriter(nullable_rules(grammar.rules), builder)
    for name, expr in grammar.rules.items():
        builder.fill(name, rewriter.rewrite(expr))
    return builder.grammar(grammar.root)


class _Rewriter:
    def __init__(self, nullable: set[str], builder: RuleBuilder) -> None:
        self._nullable = nullable
        self._builder = builder

    def rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, Sequence):
            return sequence([self.rewrite(item) for item in expr.items])
        if isinstance(expr, Choice):
            words = [item.text for item in expr.items if isinstance(item, Literal)]
            if len(words) > _MANY_WORDS:
                trie = words_expr(tuple(words), PlainText(), self._builder, "words")
                others = [self.rewrite(item) for item in expr.items if not isinstance(item, Literal)]
                return choice([trie, *others])
            return choice([self.rewrite(item) for item in expr.items])
        if isinstance(expr, Repeat):
            return self._repeat(expr)
        return expr

    def _repeat(self, expr: Repeat) -> Expr:
        item = self.rewrite(expr.item)
        if expr.high == 1 or not is_nullable(item, self._nullable):
            return repeat(item, expr.low, expr.high)
        solid = self._non_empty(item)
        return repeat(item, expr.low, expr.high) if solid is None else repeat(solid, 0, expr.high)

    def _non_empty(self, expr: Expr) -> Expr | None:
        """The non-empty texts of an expression; None where a rule would have to be rewritten for it."""
        if not is_nullable(expr, self._nullable):
            return expr
        if isinstance(expr, RuleRef):
            return None
        if isinstance(expr, Choice):
            parts = [self._non_empty(item) for item in expr.items]
            return None if None in parts else choice([part for part in parts if part is not None])
        if isinstance(expr, Repeat):
            solid = self._non_empty(expr.item)
            return None if solid is None else repeat(solid, 1, expr.high)
        assert isinstance(expr, Sequence)
        options: list[Expr] = []
        for index, item in enumerate(expr.items):
            solid = self._non_empty(item)
            if solid is None:
                return None
            spend(len(expr.items) - index)
            options.append(sequence([solid, *expr.items[index + 1 :]]))
        return choice(options)
