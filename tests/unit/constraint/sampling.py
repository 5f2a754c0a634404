"""Random texts of a grammar, for property tests: what the grammar writes has to be what the constraint allows."""

from __future__ import annotations

from random import Random

from jan_serve.constraint import ast
from jan_serve.constraint.layout import LAYOUTS, Layout, Nesting
from tests.unit.constraint.grammars import members_in_turn
from tests.unit.constraint.recognizer import Recognizer

_FAR = 10**9


class Sampler:
    """Writes random texts. Below `depth` rules it takes the shortest way to an end."""

    def __init__(
        self, grammar: ast.Grammar, *, depth: int = 25, layouts: tuple[Layout, ...] = LAYOUTS
    ) -> None:
        self._grammar = grammar
        self._recognizer = Recognizer(grammar, layouts)
        self._depth = depth
        self._nestings = [Nesting(layout) for layout in layouts]
        self._nesting = self._nestings[0]
        self._heights = dict.fromkeys(grammar.rules, _FAR)
        changed = True
        while changed:
            changed = False
            for name, expr in grammar.rules.items():
                height = 1 + self._height(expr)
                if height < self._heights[name]:
                    self._heights[name] = height
                    changed = True

    def text(self, random: Random) -> str:
        """One text of the grammar."""
        parts: list[str] = []
        self._write(ast.RuleRef(self._grammar.root), random, 0, parts)
        return "".join(parts)

    def rest(self, recognizer: Recognizer, state: int, random: Random, *, shortest: bool) -> str:
        """Characters that complete a text from a state of its recognizer on. shortest: take the shortest way."""
        parts: list[str] = []
        for expr, nesting in recognizer.continuations(state, random):
            if isinstance(expr, str):
                parts.append(expr)
            else:
                self._nesting = nesting or self._nesting
                self._write(expr, random, self._depth if shortest else 0, parts)
        return "".join(parts)

    def _height(self, expr: ast.Expr) -> int:
        """How many rules deep the shallowest text is."""
        if isinstance(expr, ast.RuleRef):
            return self._heights[expr.name]
        if isinstance(expr, ast.Terminal | ast.OneLayout | ast.Brackets):
            return self._height(expr.item)
        if isinstance(expr, ast.Repeat):
            return self._height(expr.item) if expr.low else 0
        if isinstance(expr, ast.Unordered):
            needed = [item for item, own in zip(expr.items, expr.required, strict=True) if own]
            return (
                max(map(self._height, needed))
                if needed
                else min(map(self._height, (*expr.items, expr.other)))
            )
        if isinstance(expr, ast.Sequence):
            return max((self._height(item) for item in expr.items), default=0)
        if isinstance(expr, ast.Choice):
            return min((self._height(item) for item in expr.items), default=_FAR)
        return 0

    def _write(self, expr: ast.Expr, random: Random, depth: int, parts: list[str]) -> None:
        if isinstance(expr, ast.Literal | ast.Special):
            parts.append(expr.text)
        elif isinstance(expr, ast.Both | ast.Except):
            parts.append(self._recognizer.word(expr, random))
        elif isinstance(expr, ast.CharClass):
            low, high = random.choice(expr.chars)
            # llama.cpp ends a text at NUL.
            code = random.randint(low, min(high, low + 90)) or min(high, 1)
            parts.append(chr(code if not 0xD800 <= code < 0xE000 else low))
        elif isinstance(expr, ast.Until):
            parts.append(_until(expr, random))
        elif isinstance(expr, ast.RuleRef):
            self._write(self._grammar.rules[expr.name], random, depth + 1, parts)
        elif isinstance(expr, ast.Terminal):
            self._write(expr.item, random, depth, parts)
        elif isinstance(expr, ast.OneLayout):
            self._nesting = random.choice(self._nestings)
            self._write(expr.item, random, depth, parts)
        elif isinstance(expr, ast.Mark):
            parts.append(expr.text + self._nesting.after(expr))
        elif isinstance(expr, ast.Brackets):
            outer, self._nesting = self._nesting, self._nesting.deeper()
            parts.append(expr.opening + self._nesting.line())
            self._write(expr.item, random, depth, parts)
            self._nesting = outer
            parts.append(outer.line() + expr.closing)
        elif isinstance(expr, ast.Unordered):
            options = members_in_turn(expr)
            far = depth >= self._depth
            self._write(
                min(options, key=self._height) if far else random.choice(options), random, depth, parts
            )
        elif isinstance(expr, ast.Sequence):
            for item in expr.items:
                self._write(item, random, depth, parts)
        elif isinstance(expr, ast.Choice):
            options = expr.items
            if depth >= self._depth:
                options = (min(options, key=self._height),)
            self._write(random.choice(options), random, depth, parts)
        else:
            assert isinstance(expr, ast.Repeat)
            self._repeat(expr, random, depth, parts)

    def _repeat(self, expr: ast.Repeat, random: Random, depth: int, parts: list[str]) -> None:
        most = expr.low + 3 if expr.high is None else min(expr.high, expr.low + 3)
        is_leaf = self._height(expr.item) <= 1
        count = random.randint(expr.low, most) if is_leaf or depth < self._depth else expr.low
        for _ in range(count):
            self._write(expr.item, random, depth, parts)


def _until(expr: ast.Until, random: Random) -> str:
    most = expr.low + 9 if expr.high is None else min(expr.high, expr.low + 9)
    count = random.randint(expr.low, most)
    written = "".join(random.choices("ab \n", k=count))
    opening, closing = expr.section or ("", "")
    if closing and random.random() < 0.5:
        written = f"{opening}{written}{random.choice(('', expr.stop))}{closing}"
    return written + expr.stop
