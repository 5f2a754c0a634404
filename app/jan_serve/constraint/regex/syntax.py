"""ECMA-262 regular expressions: their syntax tree, character classes and parser (the `u` flag's meaning of classes,
the lenient flagless escapes). Refused by name and position: backreferences, lookbehind, inline flags, and what
ECMA-262 calls a syntax error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import TypeAlias

import msgspec

from jan_serve.constraint import charset
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.charset import ANY, CharSet
from jan_serve.constraint.limits import MAX_PATTERN_COUNT, MAX_PATTERN_LENGTH, MAX_PATTERN_NESTING
from jan_serve.errors import UnsupportedPattern


class Chars(msgspec.Struct, frozen=True):
    """One character of a set."""

    chars: CharSet


class Concat(msgspec.Struct, frozen=True):
    """All items in order; without items, the empty string."""

    items: tuple[Regex, ...]


class Alternation(msgspec.Struct, frozen=True):
    items: tuple[Regex, ...]


class Loop(msgspec.Struct, frozen=True):
    """`item` between `low` and `high` times; `high` None means no bound. Greediness does not change a language."""

    item: Regex
    low: int
    high: int | None


class Assertion(msgspec.Struct, frozen=True):
    """A condition on the place between two characters: `^`, `$`, `b` or `B`."""

    kind: str


class Look(msgspec.Struct, frozen=True):
    """A lookahead: the rest of the string starts (or, negated, does not start) with `item`."""

    item: Regex
    negated: bool
    position: int


class Automaton(msgspec.Struct, frozen=True, eq=False):
    """Any word of a DFA."""

    dfa: Dfa


Regex: TypeAlias = Chars | Concat | Alternation | Loop | Assertion | Look | Automaton

EPSILON = Concat(())
ANYTHING = Loop(Chars(ANY), 0, None)


def concat(items: list[Regex]) -> Regex:
    """Concatenation with nested ones opened."""
    flat: list[Regex] = []
    for item in items:
        if type(item) is Concat:
            flat += item.items
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alternation(items: list[Regex]) -> Regex:
    """Alternation with duplicates dropped, and single characters merged into one set."""
    flat = list(dict.fromkeys(items))
    return flat[0] if len(flat) == 1 else Alternation(tuple(flat))


def parts(regex: Regex) -> Iterator[Regex]:
    """The expression and all that it holds."""
    todo = [regex]
    while todo:
        item = todo.pop()
        yield item
        if isinstance(item, Concat | Alternation):
            todo += item.items
        elif isinstance(item, Loop | Look):
            todo.append(item.item)


LINE_TERMINATORS = charset.of_chars("\n\r\u2028\u2029")
DOT = charset.complement(LINE_TERMINATORS)
DIGIT: CharSet = ((0x30, 0x39),)
WORD: CharSet = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# WhiteSpace and LineTerminator of ECMA-262, section 12.2 and 12.3.
SPACE: CharSet = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)

SHORTHANDS: dict[str, CharSet] = {
    "d": DIGIT,
    "D": charset.complement(DIGIT),
    "w": WORD,
    "W": charset.complement(WORD),
    "s": SPACE,
    "S": charset.complement(SPACE),
}
CONTROL_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}

_KINDS = {
    "General_Category": ("gc",),
    "gc": ("gc",),
    "Script": ("sc",),
    "sc": ("sc",),
    "Script_Extensions": ("scx", "sc"),
    "scx": ("scx", "sc"),
}
"""Values by what is before the sign of equality; a script without extensions of its own has none in the file."""


@lru_cache(maxsize=64)
def unicode_property(name: str) -> CharSet | None:
    """The set of `\\p{name}`: all properties of ECMA-262. None for a name that is none."""
    kind, equals, value = name.rpartition("=")
    kinds = _KINDS.get(kind, ()) if equals else ("gc", "")
    ranges = next((found for own in kinds if (found := _properties().get((own, value))) is not None), None)
    return None if ranges is None else _code_points(ranges)


@lru_cache(maxsize=1)
def _properties() -> dict[tuple[str, str], str]:
    """The code points of each property as the file has them, by kind and name."""
    file = resources.files("jan_serve.constraint.regex").joinpath("unicode_properties.txt")
    text = file.read_text(encoding="utf-8")
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines()[1:]:
        kind, names, ranges = line.split("=")
        found.update(((kind, name), ranges) for name in names.split(","))
    return found


def _code_points(ranges: str) -> CharSet:
    """The set that a line of the file describes."""
    found: list[tuple[int, int]] = []
    end = 0
    for part in ranges.split():
        gap, _, more = part.partition("+")
        first = end + int(gap, 36)
        end = first + int(more or "0", 36) + 1
        found.append((first, end - 1))
    return tuple(found)


_HEX = frozenset("0123456789abcdefABCDEF")
_COUNTS = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")


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
        if self.text.startswith(("\\b", "\\B"), self.at):
            self.at += 2
            return Assertion(self.text[self.at - 1])
        if c == "\\":
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
        found = _COUNTS.match(self.text, self.at)
        if found is None:
            return None
        low, comma, high = found.groups(default="")
        if max(len(low), len(high)) > 9:
            raise self._fail("repetition count too large")
        return int(low), int(high or low) if high or not comma else None, found.end()

    def _quantified(self, atom: Regex, start: int) -> Regex:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if (c := self._peek()) in simple:
            low, high, end = *simple[c], self.at + 1
        elif c == "{" and (bounds := self._bounds()) is not None:
            low, high, end = bounds
        else:
            return atom
        if high is not None and high < low:
            raise self._fail("repetition bounds out of order")
        if max(low, high or 0) > MAX_PATTERN_COUNT:
            raise self._fail(f"repetition count above {MAX_PATTERN_COUNT}")
        self.at = end
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
        while (c := self._peek()) != "]":
            if not c:
                raise self._fail("unterminated character class", start)
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
        self.at += 1
        result = charset.complement(charset.union(*sets)) if negated else charset.union(*sets)
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
        if c in "aeAZzGhHRXQELNUK":
            raise self._fail(f"\\{c} is not ECMA-262", start)
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
