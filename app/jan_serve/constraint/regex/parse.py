"""Parses ECMA-262 regular expressions (the `u` flag's meaning of classes, the lenient flagless escapes).

Refused by name and position: backreferences, lookbehind, inline flags, and what ECMA-262 calls a syntax error.
"""

from __future__ import annotations

from jan_serve.constraint import charset
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import MAX_PATTERN_COUNT, MAX_PATTERN_LENGTH, MAX_PATTERN_NESTING
from jan_serve.constraint.regex.ast import (
    EPSILON,
    Assertion,
    Chars,
    Concat,
    Look,
    Loop,
    Regex,
    alternation,
    concat,
)
from jan_serve.constraint.regex.classes import (
    CONTROL_ESCAPES,
    DOT,
    SHORTHANDS,
    unicode_property,
)
from jan_serve.errors import UnsupportedPattern

_HEX = frozenset("0123456789abcdefABCDEF")


def parse_regex(pattern: str) -> Regex:
    """The AST of `pattern`. Raises UnsupportedPattern with the position (in characters) and the reason."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise UnsupportedPattern(MAX_PATTERN_LENGTH, f"longer than {MAX_PATTERN_LENGTH} characters")
    parser = _Parser(pattern)
    result = parser.disjunction(0)
    if parser.at < len(pattern):
        raise UnsupportedPattern(parser.at, "unmatched ')'")
    return result


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _fail(self, reason: str, at: int | None = None) -> UnsupportedPattern:
        return UnsupportedPattern(self.at if at is None else at, reason)

    def disjunction(self, depth: int) -> Regex:
        """Alternatives up to ')' or the end."""
        if depth > MAX_PATTERN_NESTING:
            raise self._fail(f"groups nested deeper than {MAX_PATTERN_NESTING}")
        branches = [self._alternative(depth)]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._alternative(depth))
        return alternation(branches)

    def _alternative(self, depth: int) -> Regex:
        items: list[Regex] = []
        while (c := self._peek()) and c not in "|)":
            start = self.at
            atom = self._term(c, depth)
            if isinstance(atom, Assertion | Look):
                if self._peek() and self._peek() in "*+?":
                    raise self._fail("a quantifier after an assertion")
                items.append(atom)
            else:
                items.append(self._quantified(atom, start))
        return concat(items) if items else EPSILON

    def _term(self, c: str, depth: int) -> Regex:
        if c in "^$":
            self.at += 1
            return Assertion(c)
        if c == "(":
            return self._group(depth)
        if c == "[":
            return Chars(self._class())
        if c == ".":
            self.at += 1
            return Chars(DOT)
        if c == "\\":
            if self.text[self.at + 1 : self.at + 2] in ("b", "B"):
                self.at += 2
                return Assertion(self.text[self.at - 1])
            return Chars(self._escape(in_class=False))
        if c in "*+?":
            raise self._fail(f"nothing to repeat before {c!r}")
        if c == "{" and self._bounds() is not None:
            raise self._fail("nothing to repeat before '{'")
        self.at += 1
        return Chars(charset.of_chars(c))

    def _group(self, depth: int) -> Regex:
        start = self.at
        self.at += 1
        look: bool | None = None
        if self._peek() == "?":
            head = self.text[self.at : self.at + 3]
            if head.startswith("?:"):
                self.at += 2
            elif head.startswith(("?=", "?!")):
                look = head[1] == "!"
                self.at += 2
            elif head in ("?<=", "?<!"):
                raise self._fail("lookbehind is not supported", start)
            elif head.startswith(("?<", "?P<")):
                end = self.text.find(">", self.at)
                name = self.text[self.text.find("<", self.at) + 1 : end]
                if head[1] == "P" or end < 0 or not name.isidentifier():
                    raise self._fail("invalid group", start)
                self.at = end + 1
            else:
                raise self._fail("invalid group, or inline flags, which ECMA-262 does not have", start)
        body = self.disjunction(depth + 1)
        if self._peek() != ")":
            raise self._fail("unterminated group", start)
        self.at += 1
        if look is not None:
            return Look(body, look, start)
        # A group may be repeated even where what it holds may not.
        return Concat((body,)) if isinstance(body, Assertion | Look) else body

    def _bounds(self) -> tuple[int, int | None, int] | None:
        """(low, high, end) of a `{m,n}` at the current place, None where the brace is a literal."""
        end = self.text.find("}", self.at)
        body = self.text[self.at + 1 : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        if max(len(low), len(high)) > 9:
            raise self._fail("repetition count too large")
        upper = int(low) if not comma else int(high) if high else None
        return int(low), upper, end + 1

    def _quantified(self, atom: Regex, start: int) -> Regex:
        c = self._peek()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if c in simple and c:
            low, high = simple[c]
            self.at += 1
        elif c == "{" and (bounds := self._bounds()) is not None:
            low, high, end = bounds
            if high is not None and high < low:
                raise self._fail("repetition bounds out of order")
            if max(low, high or 0) > MAX_PATTERN_COUNT:
                raise self._fail(f"repetition count above {MAX_PATTERN_COUNT}")
            self.at = end
        else:
            return atom
        if self._peek() == "?":
            self.at += 1
        if (c := self._peek()) and (c in "*+?" or (c == "{" and self._bounds() is not None)):
            raise self._fail("nothing to repeat: two quantifiers in a row")
        if atom == EPSILON or high == 0:
            return EPSILON
        return Loop(atom, low, high)

    def _class(self) -> CharSet:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        sets: list[CharSet] = []
        while True:
            c = self._peek()
            if not c:
                raise self._fail("unterminated character class", start)
            if c == "]":
                self.at += 1
                break
            item_at = self.at
            low = self._class_atom()
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_atom()
                if charset.size(low) != 1 or charset.size(high) != 1:
                    # Flagless ECMA-262: a range with a class at an end is the two and the dash.
                    sets += [low, high, charset.of_chars("-")]
                elif low[0][0] > high[0][0]:
                    raise self._fail("character range out of order", item_at)
                else:
                    sets.append(((low[0][0], high[0][0]),))
            else:
                sets.append(low)
        result = charset.union(*sets)
        result = charset.complement(result) if negated else result
        if not result:
            raise self._fail("a character class that matches nothing", start)
        return result

    def _class_atom(self) -> CharSet:
        c = self._peek()
        if c == "\\":
            return self._escape(in_class=True)
        if not c:
            raise self._fail("unterminated character class")
        self.at += 1
        return charset.of_chars(c)

    def _hex(self, count: int) -> int | None:
        digits = self.text[self.at : self.at + count]
        if len(digits) == count and set(digits) <= _HEX:
            self.at += count
            return int(digits, 16)
        return None

    def _escape(self, *, in_class: bool) -> CharSet:
        start = self.at
        self.at += 1
        c = self._peek()
        if not c:
            raise self._fail("pattern ends in a backslash", start)
        self.at += 1
        if c in SHORTHANDS:
            return SHORTHANDS[c]
        if c in CONTROL_ESCAPES:
            return charset.of_chars(CONTROL_ESCAPES[c])
        if c in "pP":
            return self._property(c == "P", start)
        if c == "b" and in_class:
            return charset.of_chars("\b")
        if c == "0" and not self._peek().isdigit():
            return charset.of_chars("\0")
        if c.isdigit() or c == "k":
            raise self._fail("backreferences and octal escapes are not supported", start)
        if c == "c":
            letter = self._peek()
            if not (letter.isascii() and letter.isalpha()):
                raise self._fail("invalid control escape", start)
            self.at += 1
            return ((ord(letter) % 32, ord(letter) % 32),)
        if c in "xu":
            return self._code_point(c, start)
        if c.isascii() and c.isalpha():
            if c in "aeAZzGhHRXQELNUK":
                raise self._fail(f"\\{c} is not ECMA-262", start)
            return charset.of_chars(c)
        return charset.of_chars(c)

    def _code_point(self, kind: str, start: int) -> CharSet:
        if kind == "x":
            value = self._hex(2)
        elif self._peek() == "{":
            end = self.text.find("}", self.at)
            digits = self.text[self.at + 1 : end] if end > 0 else ""
            value = int(digits, 16) if 0 < len(digits) <= 8 and set(digits) <= _HEX else None
            self.at = end + 1
        else:
            value = self._hex(4)
            if value is not None and 0xD800 <= value < 0xDC00 and self.text[self.at : self.at + 2] == "\\u":
                self.at += 2
                low = self._hex(4)
                if low is None or not 0xDC00 <= low < 0xE000:
                    raise self._fail("unpaired surrogate", start)
                value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00)
        if value is None or value > charset.MAX_CODE_POINT:
            raise self._fail(f"invalid \\{kind} escape", start)
        return ((value, value),)

    def _property(self, negated: bool, start: int) -> CharSet:
        end = self.text.find("}", self.at)
        if self._peek() != "{" or end < 0:
            raise self._fail("\\p needs {Name}", start)
        name = self.text[self.at + 1 : end]
        self.at = end + 1
        found = unicode_property(name)
        if found is None:
            raise self._fail(f"unknown Unicode property {name[:40]!r}", start)
        return charset.complement(found) if negated else found
