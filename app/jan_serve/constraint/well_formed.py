"""Checks that rules can be executed: every name is defined, no rule is left-recursive, chains stay short."""

from __future__ import annotations

from jan_serve.constraint.ast import Choice, Expr, Repeat, RuleRef, Sequence, Terminal
from jan_serve.constraint.limits import MAX_LEFT_CHAIN
from jan_serve.constraint.transform import references
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
