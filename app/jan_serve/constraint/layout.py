"""How JSON is laid out: the white space after commas and colons, and around what stands in brackets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from jan_serve.constraint.ast import (
    Brackets,
    Choice,
    Expr,
    Grammar,
    Literal,
    Mark,
    OneLayout,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
    Unordered,
    optional,
    sequence,
)
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.transform import mapped, references, walk


class Layout(msgspec.Struct, frozen=True):
    """unit: the indentation of one level, where items have lines of their own."""

    name: str
    after_comma: str
    after_colon: str
    unit: str | None = None


COMPACT: Final = Layout("compact", "", "")
SPACED: Final = Layout("spaced", " ", " ")
"""What `json.dumps` writes by default."""
INDENTED: Final = tuple(
    Layout(name, "", " ", unit) for name, unit in (("two", "  "), ("four", "    "), ("tab", "\t"))
)
LAYOUTS: Final = (COMPACT, SPACED, *INDENTED)


class Nesting(NamedTuple):
    """A position in a text of one layout. depth: brackets that are open."""

    layout: Layout
    depth: int = 0

    def deeper(self) -> Nesting:
        return Nesting(self.layout, self.depth + 1)

    def line(self) -> str:
        """The line break and indentation, where the layout has them."""
        unit = self.layout.unit
        return "" if unit is None else "\n" + unit * self.depth

    def after(self, mark: Mark) -> str:
        """The white space after a comma or colon."""
        if mark.text == ":":
            return self.layout.after_colon
        return self.layout.after_comma + self.line()


def has_layouts(grammar: Grammar) -> bool:
    """Whether some text of the grammar depends on a layout."""
    exprs = walk(
        [*grammar.rules.values(), grammar.rules[grammar.root]]
    )  # the root, where it usually is, first
    return any(type(item) is OneLayout for item in exprs)


def laid_rules(rules: Mapping[str, Expr]) -> set[str]:
    """The names of the rules whose texts depend on a layout that is chosen outside of them."""
    laid = set[str]()
    users: dict[str, list[str]] = {}
    for name, expr in rules.items():
        has_nodes, used = layout_uses(expr)
        if has_nodes:
            laid.add(name)
        for other in used:
            users.setdefault(other, []).append(name)
    return _with_users(laid, users)


def layout_uses(expr: Expr) -> tuple[bool, set[str]]:
    """Whether some node outside of a `OneLayout` depends on a layout, and all rules referred to there."""
    has_nodes = False
    used = set[str]()
    todo: list[Expr] = [expr]
    while todo:
        item = todo.pop()
        if type(item) is Sequence or type(item) is Choice:
            todo += item.items
        elif type(item) is Unordered:
            todo += (*item.items, item.separator, item.other)
        elif type(item) is RuleRef:
            used.add(item.name)
        elif type(item) is Repeat:
            todo.append(item.item)
        elif type(item) is Mark:
            has_nodes = True
        elif type(item) is Brackets:
            has_nodes = True
            used |= references(item.item)
    return has_nodes, used


def _with_users(names: set[str], users: Mapping[str, Iterable[str]]) -> set[str]:
    """The rules of these names, and those that refer to them."""
    found = set(names)
    todo = list(found)
    while todo:
        for user in users.get(todo.pop(), ()):
            if user not in found:
                found.add(user)
                todo.append(user)
    return found


def with_optional_spaces(grammar: Grammar) -> Grammar:
    """The grammar without layout nodes, on one line: each comma and colon may have a space after it.

    Wider than compact or spaced texts, and half as large as both: every rule is there once.
    """
    rules = RuleBuilder()
    for name in grammar.rules:
        rules.adopt(name)
    marks = {
        text: rules.define("mark", sequence([Literal(text), optional(Literal(" "))])) for text in (",", ":")
    }
    for name, expr in grammar.rules.items():
        rules.fill(name, _spaced_at_will(expr, marks))
    return rules.grammar(grammar.root)


def _spaced_at_will(expr: Expr, marks: Mapping[str, Expr]) -> Expr:
    if isinstance(expr, Mark):
        return marks[expr.text]
    if isinstance(expr, OneLayout):
        return _spaced_at_will(expr.item, marks)
    if isinstance(expr, Brackets):
        return sequence([Literal(expr.opening), _spaced_at_will(expr.item, marks), Literal(expr.closing)])
    if isinstance(expr, Terminal):
        return expr
    return mapped(expr, lambda item: _spaced_at_will(item, marks))
