"""Prints a grammar as GBNF that llama.cpp compiles quickly and samples from without blowing up. llama.cpp copies the
repeated item for every count and refuses, hangs or crashes past a product of 2,000, so long repetitions become rules
over powers of two: O(log n) rules, and at most O(log n) live parse stacks."""

from __future__ import annotations

from jan_serve.constraint import ast
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet, complement
from jan_serve.constraint.layout import with_optional_spaces
from jan_serve.constraint.limits import MAX_PRINTED_BYTES
from jan_serve.constraint.rules import has_node
from jan_serve.errors import GrammarTooComplex

# Up to this count llama.cpp's own expansion is the fastest form: one rule per optional copy, one live stack.
_NATIVE_REPEAT = 32
# A longer character class gets a rule, so it is written once.
_LONG_CLASS = 100

_CLASS_ESCAPES = {
    **{0x5C: "\\\\", 0x5D: "\\]", 0x5B: "\\[", 0x5E: "\\x5E", 0x2D: "\\x2D"},
    **{0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x22: '\\"'},
}
_LITERAL_ESCAPES = str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    | {chr(c): f"\\x{c:02X}" for c in (*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)}
)


def print_gbnf(grammar: ast.Grammar) -> str:
    """GBNF text of `grammar`, start rule first. It always names its start rule `root`. A layout, for which GBNF would
    need parameters, is any on one line: each comma and colon may have a space after it. Raises GrammarTooComplex above
    the size limit."""
    return _Printer(with_optional_spaces(grammar) if has_node(grammar, ast.OneLayout) else grammar).print()


def quote_literal(text: str) -> str:
    return f'"{text.translate(_LITERAL_ESCAPES)}"'


def _class_char(code_point: int) -> str:
    escaped = _CLASS_ESCAPES.get(code_point)
    if escaped is not None:
        return escaped
    if 0x20 <= code_point < 0x7F:
        return chr(code_point)
    if code_point <= 0xFF:
        return f"\\x{code_point:02X}"
    if code_point <= 0xFFFF:
        return f"\\u{code_point:04X}"
    return f"\\U{code_point:08X}"


def quote_class(chars: CharSet) -> str:
    """A GBNF character class; sets that lack only ASCII are printed as exclusions. llama.cpp rejects a token that
    holds the first bytes of a character if it could become an excluded one."""
    if chars == ((0, MAX_CODE_POINT),):
        return "."
    prefix = "["
    if chars[-1][0] <= 0x80 and chars[-1][1] == MAX_CODE_POINT:
        prefix, chars = "[^", complement(chars)
    parts = [prefix]
    for low, high in chars:
        parts.append(_class_char(low))
        if high > low:
            if high > low + 1:
                parts.append("-")
            parts.append(_class_char(high))
    parts.append("]")
    return "".join(parts)


class _Printer:
    def __init__(self, grammar: ast.Grammar) -> None:
        self._grammar = grammar
        self._names = {name: name for name in grammar.rules}
        self._taken = {*grammar.rules, "root"}
        if grammar.root != "root":
            self._names["root"] = self._fresh("root")
            self._names[grammar.root] = "root"
        self._extra: list[str] = []
        self._powers: dict[str, str] = {}
        self._classes: dict[CharSet, str] = {}

    def _fresh(self, stem: str) -> str:
        number = len(self._taken)
        while f"{stem}-{number}" in self._taken:
            number += 1
        name = f"{stem}-{number}"
        self._taken.add(name)
        return name

    def print(self) -> str:
        rules = self._grammar.rules
        order = [self._grammar.root, *(name for name in rules if name != self._grammar.root)]
        lines: list[str] = []
        size = 0
        for name in order:
            lines.append(f"{self._names[name]} ::= {self._expr(rules[name])}")
            lines += self._extra
            self._extra = []
            size += len(lines[-1])
            if size > MAX_PRINTED_BYTES:
                raise GrammarTooComplex(f"the grammar would be larger than {MAX_PRINTED_BYTES} bytes")
        return "\n".join(lines) + "\n"

    def _expr(self, expr: ast.Expr) -> str:
        """Text of an expression where alternatives need no parentheses."""
        if type(expr) is ast.Terminal:
            expr = expr.item
        if type(expr) is ast.Choice:
            return " | ".join([self._sequence(item) for item in expr.items])
        return self._sequence(expr)

    def _sequence(self, expr: ast.Expr) -> str:
        if type(expr) is ast.Sequence:
            if not expr.items:
                return '""'
            return " ".join([self._part(item) for item in expr.items])
        if type(expr) is ast.Terminal:
            return self._sequence(expr.item)
        return self._item(expr)

    def _part(self, expr: ast.Expr) -> str:
        """Text of an expression as one part of a sequence."""
        if type(expr) is ast.Terminal and type(expr.item) is ast.Sequence:
            return self._sequence(expr.item)
        return self._item(expr)

    def _item(self, expr: ast.Expr) -> str:
        if type(expr) is ast.Literal or type(expr) is ast.Special:
            return quote_literal(expr.text)
        if type(expr) is ast.RuleRef:
            return self._names[expr.name]
        if type(expr) is ast.CharClass:
            text = self._classes.get(expr.chars)
            if text is None:
                text = quote_class(expr.chars)
                if len(text) > _LONG_CLASS:
                    text = self._hoist(text, "class")
                self._classes[expr.chars] = text
            return text
        if type(expr) is ast.Repeat:
            return self._repeat(expr)
        if type(expr) is ast.Terminal:
            return self._item(expr.item)
        return f"({self._expr(expr)})"

    def _repeat(self, expr: ast.Repeat) -> str:
        low, high = expr.low, expr.high
        item = self._item(expr.item)
        if type(expr.item) in (ast.Repeat, ast.Terminal):
            item = f"({item})"
        if high is None and low <= 1:
            return item + ("*" if low == 0 else "+")
        if (low, high) == (0, 1):
            return item + "?"
        if type(expr.item) not in (ast.CharClass, ast.RuleRef):
            # llama.cpp multiplies the count by the rules inside the item: a name keeps that factor at one.
            item = self._hoist(item)
        if low <= _NATIVE_REPEAT and (high is None or high <= _NATIVE_REPEAT):
            bounds = str(low) if low == high else f"{low},{'' if high is None else high}"
            return f"{item}{{{bounds}}}"
        if type(expr.item) is not ast.RuleRef:
            item = self._hoist(item)
        parts = self._exactly(item, low)
        if high is None:
            parts.append(f"{item}*")
        elif high > low:
            parts.append(self._at_most(item, high - low))
        return " ".join(parts)

    def _hoist(self, text: str, stem: str = "item") -> str:
        name = self._fresh(stem)
        is_group = text.startswith("(") and text.endswith(")")
        self._extra.append(f"{name} ::= {text[1:-1] if is_group else text}")
        return name

    def _exactly(self, item: str, count: int) -> list[str]:
        parts: list[str] = []
        power = count.bit_length() - 1
        while count:
            if count < 4:
                return parts + [item] * count
            if count >= 1 << power:
                parts.append(self._power(item, power))
                count -= 1 << power
            power -= 1
        return parts

    def _power(self, item: str, power: int) -> str:
        """A rule for exactly 2**power items."""
        if power == 0:
            return item
        name = f"{item}-x{1 << power}"
        if name not in self._powers:
            half = self._power(item, power - 1)
            self._powers[name] = self._fresh(name)
            self._extra.append(f"{self._powers[name]} ::= {half} {half}")
        return self._powers[name]

    def _at_most(self, item: str, count: int) -> str:
        """A rule for 0..count items, most significant power first. After any number of items at most one position per
        power is live, so stacks stay logarithmic."""
        if count <= _NATIVE_REPEAT:
            return f"{item}{{0,{count}}}" if count > 1 else f"{item}?"
        name = f"{item}-to{count}"
        if name not in self._powers:
            power = count.bit_length() - 1
            own = self._powers[name] = self._fresh(name)
            full, rest = self._power(item, power), count - (1 << power)
            tail = f" {self._at_most(item, rest)}" if rest else ""
            self._extra.append(f"{own} ::= {full}{tail} | {self._at_most(item, (1 << power) - 1)}")
        return self._powers[name]
