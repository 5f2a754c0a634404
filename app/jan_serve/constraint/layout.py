"""How JSON is laid out: the white space after commas and colons, and around what stands in brackets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from jan_serve.constraint import ast
from jan_serve.constraint.automata.dfa import reached
from jan_serve.constraint.rules import RuleBuilder, mapped, references, users_of


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

    def after(self, mark: ast.Mark) -> str:
        """The white space after a comma or colon."""
        if mark.text == ":":
            return self.layout.after_colon
        return self.layout.after_comma + self.line()


def laid_rules(rules: Mapping[str, ast.Expr]) -> set[str]:
    """The names of the rules whose texts depend on a layout that is chosen outside of them."""
    found = {name: layout_uses(expr) for name, expr in rules.items()}
    users = users_of({name: used for name, (_, used) in found.items()})
    nodes = (name for name, (has_nodes, _) in found.items() if has_nodes)
    return reached(nodes, lambda name: users.get(name, ()))


def layout_uses(expr: ast.Expr) -> tuple[bool, set[str]]:
    """Whether some node outside of a `OneLayout` depends on a layout, and all rules referred to there."""
    has_nodes = False
    used = set[str]()
    todo: list[ast.Expr] = [expr]
    while todo:
        match item := todo.pop():
            case ast.Sequence(items) | ast.Choice(items):
                todo += items
            case ast.Unordered():
                todo += (*item.items, item.separator, item.other)
            case ast.RuleRef(name):
                used.add(name)
            case ast.Repeat(part):
                todo.append(part)
            case ast.Mark():
                has_nodes = True
            case ast.Brackets(_, part):
                has_nodes = True
                used |= references(part)
            case _:
                pass
    return has_nodes, used


def with_optional_spaces(grammar: ast.Grammar) -> ast.Grammar:
    """The grammar without layout nodes, on one line: each comma and colon may have a space after it. Wider than
    compact or spaced texts, and half as large as both: every rule is there once."""
    rules = RuleBuilder()
    rules.adopt(grammar)
    space = ast.optional(ast.Literal(" "))
    marks = {text: rules.define("mark", ast.sequence([ast.Literal(text), space])) for text in (",", ":")}

    def spaced(expr: ast.Expr) -> ast.Expr:
        match expr:
            case ast.Mark(text):
                return marks[text]
            case ast.OneLayout(item):
                return spaced(item)
            case ast.Brackets(opening, item, closing):
                return ast.sequence([ast.Literal(opening), spaced(item), ast.Literal(closing)])
            case ast.Terminal():
                return expr
            case _:
                return mapped(expr, spaced)

    for name, expr in grammar.rules.items():
        rules.fill(name, spaced(expr))
    return ast.Grammar(rules.rules, grammar.root)
