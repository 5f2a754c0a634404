"""Prints a grammar in llguidance's Lark dialect.

llguidance's lexer is greedy: it keeps reading while any terminal that is allowed here can continue. So a terminal of
several characters is printed only for a `Token`, which promises that greed does no harm; everything else becomes
terminals of one character, for which greedy reading is exact. Where one token cannot be written as a terminal, no
token is: the two kinds must not meet in one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from jan_serve.errors import GrammarTooComplex
from jan_serve.grammar.ast import (
    CharClass,
    Choice,
    Expr,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    Special,
    Token,
)
from jan_serve.grammar.charset import MAX_CODE_POINT, CharSet, complement
from jan_serve.grammar.components import components
from jan_serve.grammar.limits import MAX_LARK_BYTES, MAX_LARK_GROUPS, MAX_REFERENCE_DEPTH
from jan_serve.grammar.reference_depth import reference_depth, resting_places
from jan_serve.grammar.right_linear import NotRegular, solve
from jan_serve.grammar.transform import references

_SURROGATES = ((0xD800, 0xDFFF),)
_UNSAFE_NAME = re.compile(r"[^a-z0-9]+")
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/|[()]|[A-Za-z_]\w*')
_NOTHING = "/[^\\s\\S]/"
# Expressions up to this length are repeated in place; longer ones get a name.
_INLINE = 60


class LarkText(NamedTuple):
    """A printed grammar. specials: rules that the text uses and does not define, with the text of each `Special`."""

    text: str
    specials: tuple[tuple[str, str], ...]


def print_lark(grammar: Grammar) -> str:
    """Lark text of `grammar`, which has no `Special`; its start rule is `start`.

    Raises GrammarTooComplex above the limits of size and of references within references.
    """
    text, specials = print_lark_open(grammar)
    if specials:
        raise ValueError("a grammar with control tokens is complete only with a vocabulary")
    return text


def print_lark_open(
    grammar: Grammar, *, tokens: bool = True, holes: Mapping[str, str] | None = None
) -> LarkText:
    """As `print_lark`, with the rules of its `Special` nodes left to whoever knows the vocabulary.

    tokens: write a `Token` as a terminal; not if free text is allowed there too, since greed would cut it off.
    holes: rules that the grammar leaves undefined, and their names in the text.
    """
    if tokens:
        try:
            return _Printer(grammar, tokens=True, holes=holes or {}).print()
        except NotRegular:
            pass
    return _Printer(grammar, tokens=False, holes=holes or {}).print()


def spelled_out(text: str) -> str:
    """The body of a rule for exactly this text, one character a terminal."""
    return " ".join([quote_literal(c) for c in text])


class _Printer:
    def __init__(self, grammar: Grammar, *, tokens: bool, holes: Mapping[str, str]) -> None:
        self._rules = grammar.rules
        self._root = grammar.root
        self._tokens = tokens
        self._taken = {"start", *holes.values()}
        self._next: dict[str, int] = {}
        self._names: dict[str, str] = {**holes, grammar.root: "start"}
        self._todo: list[str] = [grammar.root]
        self._lines: list[str] = []
        self._size = 0
        self._terminals: dict[str, str] = {}
        self._by_text: dict[str, str] = {}
        self._specials: dict[str, str] = {}
        self._groups = 0

    def print(self) -> LarkText:
        while self._todo:
            name = self._todo.pop()
            self._add(self._names[name], self._rule(self._rules[name]))
        # llguidance reads terminals in any order; defined before use is easier to read.
        start = next(i for i, line in enumerate(self._lines) if line.startswith("start:"))
        lines = [self._lines[start], *self._lines[:start], *self._lines[start + 1 :]]
        if len(lines) > MAX_REFERENCE_DEPTH:
            lines[0] = self._shallow(lines)
        return LarkText("\n".join(lines) + "\n", tuple((rule, text) for text, rule in self._specials.items()))

    def _shallow(self, lines: list[str]) -> str:
        """The start rule, where needed with an alternative that no text takes: it refers to rules far down, so that
        no chain of references is long when llguidance follows it."""
        bodies = dict(line.split(": ", 1) for line in lines)
        uses = {name: _references_in(body, bodies) for name, body in bodies.items()}
        if reference_depth(uses, "start") <= MAX_REFERENCE_DEPTH:
            return lines[0]
        first = resting_places(uses, "start", MAX_REFERENCE_DEPTH // 2)
        uses["start"] = [*((name, 1) for name in first), *uses["start"]]
        if reference_depth(uses, "start") > MAX_REFERENCE_DEPTH:
            raise GrammarTooComplex(f"rules refer to one another deeper than {MAX_REFERENCE_DEPTH} levels")
        return f"start: {_NOTHING} ({' | '.join(first)}) | {bodies['start']}"

    def _add(self, name: str, body: str) -> None:
        line = f"{name}: {body}"
        self._size += len(line) + 1
        if self._size > MAX_LARK_BYTES:
            raise GrammarTooComplex("the grammar is too large to be printed as Lark")
        self._lines.append(line)

    def _fresh(self, stem: str) -> str:
        name, number = stem, self._next.get(stem, 2)
        while name in self._taken:
            name = f"{stem}_{number}"
            number += 1
        self._next[stem] = number
        self._taken.add(name)
        return name

    # Rules

    def _reference(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._fresh("r_" + _UNSAFE_NAME.sub("_", name.lower()).strip("_"))
            self._todo.append(name)
        return known

    def _rule(self, expr: Expr) -> str:
        if isinstance(expr, Choice):
            return " | ".join([self._rule_sequence(item) for item in expr.items])
        return self._rule_sequence(expr)

    def _rule_sequence(self, expr: Expr) -> str:
        if isinstance(expr, Sequence) and expr.items:
            return " ".join([self._rule_item(item) for item in expr.items])
        return self._rule_item(expr)

    def _rule_item(self, expr: Expr) -> str:
        if isinstance(expr, Literal):
            return spelled_out(expr.text)
        if isinstance(expr, Special):
            rule = self._specials.get(expr.text)
            if rule is None:
                rule = self._specials[expr.text] = self._fresh("special")
            return rule
        if isinstance(expr, CharClass):
            return self._class(expr.chars)
        if isinstance(expr, RuleRef):
            return self._reference(expr.name)
        if isinstance(expr, Token):
            return self._token(expr.item) if self._tokens else self._rule_item(expr.item)
        if isinstance(expr, Repeat):
            return self._nested(self._rule, expr.item, "g") + _bounds(expr)
        if isinstance(expr, Sequence) and not expr.items:
            return '""'
        return self._nested(self._rule, expr, "g")

    def _nested(self, write: Callable[[Expr], str], expr: Expr, stem: str) -> str:
        """A group; one nested too deep becomes a separate rule or terminal."""
        outer, self._groups = self._groups, self._groups + 1
        if self._groups > MAX_LARK_GROUPS:
            self._groups = 0
        text = write(expr)
        deep, self._groups = outer == MAX_LARK_GROUPS, outer
        if not deep:
            return f"({text})"
        name = self._fresh(stem)
        self._add(name, text)
        return name

    # Terminals

    def _class(self, chars: CharSet) -> str:
        """A character class; a long one is written once and has a name."""
        text = quote_class(chars)
        return text if len(text) <= _INLINE else self._named(text, "C")

    def _token(self, expr: Expr) -> str:
        text = self._terminal(expr)
        return self._named(text, "T")

    def _named(self, text: str, stem: str) -> str:
        """A terminal with this body; short bodies that are a single string or class stay themselves."""
        if text.startswith('"') and text.count('"') == 2 + text.count('\\"') and " " not in text:
            return text
        name = self._by_text.get(text)
        if name is None:
            name = self._by_text[text] = self._fresh(stem)
            self._add(name, text)
        return name

    def _terminal(self, expr: Expr) -> str:
        if isinstance(expr, Choice):
            return " | ".join([self._terminal_sequence(item) for item in expr.items])
        return self._terminal_sequence(expr)

    def _terminal_sequence(self, expr: Expr) -> str:
        if isinstance(expr, Sequence) and expr.items:
            return " ".join([self._terminal_item(item) for item in expr.items])
        return self._terminal_item(expr)

    def _terminal_item(self, expr: Expr) -> str:
        if isinstance(expr, Literal):
            return quote_literal(expr.text)
        if isinstance(expr, CharClass):
            return self._class(expr.chars)
        if isinstance(expr, RuleRef):
            return self._terminal_rule(expr.name)
        if isinstance(expr, Token):
            return self._terminal_item(expr.item)
        if isinstance(expr, Repeat):
            return self._nested(self._terminal, expr.item, "G") + _bounds(expr)
        if isinstance(expr, Sequence) and not expr.items:
            return '""'
        return self._nested(self._terminal, expr, "G")

    def _terminal_rule(self, name: str) -> str:
        """The terminal of a rule. Rules on a cycle are solved together, all others printed one by one."""
        known = self._terminals.get(name)
        if known is not None:
            return known
        for group in components(name, self._unprinted):
            if len(group) == 1 and group[0] not in references(self._rules[group[0]]):
                self._terminals[group[0]] = self._group(self._terminal(self._rules[group[0]]))
            else:
                bodies = {member: self._rules[member] for member in group}
                solved = solve(bodies, self._terminal_item, self._group)
                for member, text in solved.items():
                    self._terminals[member] = text
        return self._terminals[name]

    def _group(self, text: str) -> str:
        """A body made safe to stand in a sequence: short ones in parentheses, long ones by name."""
        return f"({text})" if len(text) <= _INLINE else self._named(text, "P")

    def _unprinted(self, name: str) -> list[str]:
        return sorted(t for t in references(self._rules[name]) if t not in self._terminals)


def _references_in(body: str, known: Container[str]) -> list[tuple[str, int]]:
    """The rules and terminals that a printed body refers to, each with the groups around it."""
    found: list[tuple[str, int]] = []
    groups = 0
    for piece in _PIECES.findall(body):
        if piece in "()":
            groups += 1 if piece == "(" else -1
        elif piece in known:
            found.append((piece, groups))
    return found


def _bounds(expr: Repeat) -> str:
    if expr.high is None and expr.low <= 1:
        return "+" if expr.low else "*"
    if (expr.low, expr.high) == (0, 1):
        return "?"
    return f"{{{expr.low},{'' if expr.high is None else expr.high}}}"


def quote_literal(text: str) -> str:
    parts = ['"']
    for c in text:
        code = ord(c)
        if c in '"\\':
            parts.append("\\" + c)
        elif 0x20 <= code < 0x7F:
            parts.append(c)
        elif c in "\n\r\t":
            parts.append({"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c])
        elif code <= 0xFFFF:
            parts.append(f"\\u{code:04x}")
        else:
            parts.append(c)
    parts.append('"')
    return "".join(parts)


def quote_class(chars: CharSet) -> str:
    """A Lark regular expression for one character of the set."""
    prefix = "/["
    if chars[-1][1] == MAX_CODE_POINT and chars != ((0, MAX_CODE_POINT),):
        prefix, chars = "/[^", complement(chars)
    ranges = [part for low, high in chars for part in _without_surrogates(low, high)]
    if not ranges:
        return "/(?s:.)/" if prefix == "/[^" else '"\\ud800"'
    body = "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)
    return f"{prefix}{body}]/"


def _without_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    """The parts of a range that text can hold; the regex engine knows no surrogates."""
    first, last = _SURROGATES[0]
    return [(a, b) for a, b in ((low, min(high, first - 1)), (max(low, last + 1), high)) if a <= b]


def _code(code: int) -> str:
    c = chr(code)
    return c if c.isascii() and c.isalnum() else f"\\x{{{code:x}}}"
