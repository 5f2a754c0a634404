"""Parses GBNF, as llama.cpp reads it, into the grammar AST, and rejects grammars that would hurt an executor.

Every grammar from a request passes through here before any executor sees it. Terminal references (`<[id]>`)
are rejected: a grammar describes text, and has to mean the same for every model.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from jan_serve.constraint.ast import (
    EMPTY,
    CharClass,
    Expr,
    Grammar,
    Literal,
    RuleRef,
    Sequence,
    choice,
    repeat,
)
from jan_serve.constraint.charset import MAX_CODE_POINT, char_set, complement
from jan_serve.constraint.executable import check_rules, normalise
from jan_serve.constraint.limits import (
    MAX_GRAMMAR_BYTES,
    MAX_GRAMMAR_NESTING,
    MAX_PATTERN_COUNT,
    MAX_RULES,
    budget,
)
from jan_serve.constraint.transform import prune
from jan_serve.errors import InvalidGrammar

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_HEX_WIDTH = {"x": 2, "u": 4, "U": 8}
_SIMPLE_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}


def parse_gbnf(text: str) -> Grammar:
    """The grammar of a GBNF text; its start rule is `root`.

    Raises InvalidGrammar, with the line if known, for a syntax error, an undefined rule, a missing root,
    left recursion, bounds out of order, and for texts, counts and nesting above the limits; GrammarTooComplex where
    rewriting takes too much work. The result may be written differently (repetitions of items that can be empty, long
    lists of words), but has the same meaning.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_GRAMMAR_BYTES:
        raise InvalidGrammar(f"larger than {MAX_GRAMMAR_BYTES} bytes")
    rules, lines = _Parser(text).rules()
    if "root" not in rules:
        raise InvalidGrammar("no rule is named root")
    check_rules(rules, lines)
    grammar = prune(Grammar(rules, "root"))
    if grammar is None:
        raise InvalidGrammar("no finite text completes the rule root", lines["root"])
    with budget():
        return normalise(grammar)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def rules(self) -> tuple[dict[str, Expr], dict[str, int]]:
        """The rules and the line of each."""
        rules: dict[str, Expr] = {}
        lines: dict[str, int] = {}
        self._space(newlines=True)
        while self._at < len(self._text):
            line = self._line()
            name = self._name()
            self._space(newlines=False)
            if not self._text.startswith("::=", self._at):
                hint = "; no grammar has that name" if self._text.strip() == name else ""
                raise self._fail(f"expected ::= after {name[:50]!r}{hint}")
            self._at += 3
            self._space(newlines=True)
            rules[name] = self._alternatives(0)
            lines[name] = line
            if self._peek() not in ("", "\r", "\n"):
                raise self._fail(f"unexpected {self._peek()!r}")
            self._space(newlines=True)
            if len(rules) > MAX_RULES:
                raise self._fail(f"more than {MAX_RULES} rules")
        return rules, lines

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1

    def _fail(self, reason: str) -> InvalidGrammar:
        return InvalidGrammar(reason, self._line())

    def _space(self, *, newlines: bool) -> None:
        blank = " \t\r\n" if newlines else " \t"
        while (c := self._peek()) and (c in blank or c == "#"):
            if c == "#":
                while self._peek() not in ("", "\r", "\n"):
                    self._at += 1
            else:
                self._at += 1

    def _name(self) -> str:
        start = self._at
        while self._peek() in _NAME and self._peek():
            self._at += 1
        if start == self._at:
            found = repr(self._peek()) if self._peek() else "the end"
            raise self._fail(f"expected a rule name (letters, digits, dashes), found {found}")
        return self._text[start : self._at]

    def _alternatives(self, depth: int) -> Expr:
        if depth > MAX_GRAMMAR_NESTING:
            raise self._fail(f"groups nested deeper than {MAX_GRAMMAR_NESTING}")
        options = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            self._space(newlines=True)
            options.append(self._sequence(depth))
        return choice(options)

    def _sequence(self, depth: int) -> Expr:
        items: list[Expr] = []
        repeated = False
        while c := self._peek():
            nested = depth > 0
            if c in "*+?{":
                if not items:
                    raise self._fail(f"nothing to repeat before {c!r}")
                if repeated:
                    raise self._fail("two repetitions in a row: use parentheses")
                items[-1] = self._repetition(items[-1])
                repeated = True
                self._space(newlines=nested)
                continue
            item = self._item(c, depth)
            if item is None:
                break
            repeated = False
            items.append(item)
            self._space(newlines=nested)
        # Not `sequence()`: a literal must not swallow its neighbour while a repetition may still follow.
        flat = [part for item in items for part in (item.items if isinstance(item, Sequence) else (item,))]
        return flat[0] if len(flat) == 1 else Sequence(tuple(flat))

    def _item(self, c: str, depth: int) -> Expr | None:
        if c == '"':
            return self._literal()
        if c == "[":
            return self._class()
        if c == ".":
            self._at += 1
            return CharClass(((0, MAX_CODE_POINT),))
        if c == "(":
            line = self._line()
            self._at += 1
            self._space(newlines=True)
            group = self._alternatives(depth + 1)
            if self._peek() != ")":
                raise InvalidGrammar("a group is not closed", line)
            self._at += 1
            return group
        if c in _NAME:
            return RuleRef(self._name())
        if c in "<!":
            raise self._fail("token references are not supported: a grammar describes text")
        return None

    def _literal(self) -> Expr:
        line = self._line()
        self._at += 1
        parts: list[str] = []
        while (c := self._peek()) != '"':
            if not c or c == "\n":
                raise InvalidGrammar("a string is not closed", line)
            parts.append(self._char())
        self._at += 1
        return Literal("".join(parts)) if parts else EMPTY

    def _class(self) -> Expr:
        line = self._line()
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (c := self._peek()) != "]":
            if not c or c == "\n":
                raise InvalidGrammar("a character class is not closed", line)
            low = high = ord(self._char())
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = ord(self._char())
                if high < low:
                    raise self._fail("a character range is out of order")
            ranges.append((low, high))
        self._at += 1
        chars = complement(char_set(ranges)) if negated else char_set(ranges)
        if not chars:
            raise InvalidGrammar("a character class matches nothing", line)
        return CharClass(chars)

    def _char(self) -> str:
        c = self._peek()
        self._at += 1
        if c != "\\":
            return c
        kind = self._peek()
        self._at += 1
        if kind in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[kind]
        width = _HEX_WIDTH.get(kind)
        if width is None:
            raise self._fail(f"unknown escape \\{kind}")
        digits = self._text[self._at : self._at + width]
        self._at += width
        if len(digits) < width or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self._fail(f"\\{kind} needs {width} hex digits")
        if int(digits, 16) > MAX_CODE_POINT:
            raise self._fail(f"\\{kind}{digits} is not a character")
        return chr(int(digits, 16))

    def _repetition(self, item: Expr) -> Expr:
        c = self._peek()
        if c != "{":
            self._at += 1
            return repeat(item, 1 if c == "+" else 0, 1 if c == "?" else None)
        end = self._text.find("}", self._at)
        body = self._text[self._at + 1 : end] if end > 0 else ""
        low, comma, high = (part.strip() for part in body.partition(","))
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            raise self._fail("a repetition is {n}, {n,} or {n,m}")
        if max(len(low), len(high)) > 9 or max(int(low), int(high or 0)) > MAX_PATTERN_COUNT:
            raise self._fail(f"a repetition count above {MAX_PATTERN_COUNT}")
        least = int(low)
        most = least if not comma else int(high) if high else None
        if most is not None and most < least:
            raise self._fail(f"a repetition of at least {least} and at most {most}")
        self._at = end + 1
        return repeat(item, least, most)
