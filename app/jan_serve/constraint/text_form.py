"""Writes decoded characters in the generated text: unchanged, or inside a JSON string. Automata speak of decoded
characters. `JsonText` maps a set of them to every spelling that a JSON writer uses: raw, the two-character escapes,
and `\\uXXXX` (a surrogate pair above U+FFFF) for everything but printable ASCII. What is excluded from such texts is
in `EverySpelling`: any character may have all spellings, so `\\u0061` is an `a`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from jan_serve.constraint import charset
from jan_serve.constraint.ast import EMPTY, CharClass, Expr, Literal, RuleRef, choice, sequence
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet
from jan_serve.constraint.rules import RuleBuilder

_MUST_ESCAPE: CharSet = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_RAW = charset.complement(_MUST_ESCAPE)
_SHORT_ESCAPES = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
_PYTHON_ESCAPES = {0x09: "t", 0x0A: "n", 0x0D: "r", 0x27: "'", 0x5C: "\\"}
_SHORT_ONLY: CharSet = ((0x22, 0x22), (0x5C, 0x5C))
# `/` has an escape too. It is allowed where any character is, and nowhere else.
_ESCAPABLE: CharSet = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, MAX_CODE_POINT))
_SURROGATES: CharSet = ((0xD800, 0xDFFF),)
_BMP: CharSet = ((0, 0xFFFF),)


class PlainText:
    """A way to write decoded characters: they stand for themselves, and `tail`, here nothing, closes the text."""

    tail: Expr = EMPTY

    def chars(self, chars: CharSet) -> Expr:
        """One character of a non-empty set."""
        return _one_of(chars)

    def literal(self, text: str) -> Expr:
        return Literal(text) if text else EMPTY


class SingleQuoted(PlainText):
    """Characters inside a string of Python between single quotes: line breaks and tabs as they are, or escaped."""

    tail = Literal("'")

    def chars(self, chars: CharSet) -> Expr:
        raw = charset.subtract(chars, charset.of_chars("'\\"))
        escaped = [by for code, by in _PYTHON_ESCAPES.items() if charset.contains(chars, code)]
        return choice([*([_one_of(raw)] if raw else []), *(Literal("\\" + by) for by in escaped)])

    def literal(self, text: str) -> Expr:
        return sequence([self.chars(charset.of_chars(c)) for c in text])


class JsonText(PlainText):
    """Characters inside a JSON string; the closing quote ends the text."""

    tail = Literal('"')

    def __init__(self, rules: RuleBuilder) -> None:
        self._rules = rules
        self._memo: dict[CharSet, Expr] = {}
        self._escapes: dict[CharSet, RuleRef] = {}

    @cached_property
    def excluded(self) -> JsonText:
        """The form of texts that are excluded from texts of this form."""
        return EverySpelling(self._rules)

    def chars(self, chars: CharSet) -> Expr:
        expr = self._memo.get(chars)
        if expr is None:
            raw = charset.intersect(chars, _RAW)
            special = chars if self._has_all(chars) else charset.intersect(chars, _ESCAPABLE)
            expr = choice([_one_of(raw)] if raw else [])
            if special:
                expr = choice([expr, self._escape(special)])
                if type(expr) is not RuleRef:
                    expr = self._rules.define("char", expr, complete=True)
            self._memo[chars] = expr
        return expr

    def _has_all(self, chars: CharSet) -> bool:
        """Whether the characters have all spellings of JSON."""
        return chars == charset.ANY

    def literal(self, text: str) -> Expr:
        if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
            return Literal(text) if text else EMPTY
        return sequence([self._one(c) for c in text])

    def _one(self, c: str) -> Expr:
        code = ord(c)
        if code in _SHORT_ESCAPES:
            return Literal("\\" + _SHORT_ESCAPES[code])
        if 0x20 <= code < 0x7F:
            return Literal(c)
        return self.chars(((code, code),))

    def _escape(self, chars: CharSet) -> Expr:
        """The escaped spellings of a set of characters; one rule serves every set with the same ones."""
        rule = self._escapes.get(chars)
        if rule is not None:
            return rule
        short = [ord(e) for code, e in _SHORT_ESCAPES.items() if charset.contains(chars, code)]
        if self._has_all(chars) and charset.contains(chars, 0x2F):
            short.append(0x2F)
        coded = chars if self._has_all(chars) else charset.subtract(chars, _SHORT_ONLY)
        escaped: list[Expr] = [CharClass(charset.char_set((c, c) for c in short))] if short else []
        if coded:
            escaped.append(sequence([Literal("u"), self._code_units(coded)]))
        rule = self._rules.define("escape", sequence([Literal("\\"), choice(escaped)]), complete=True)
        self._escapes[chars] = rule
        return rule

    def _code_units(self, chars: CharSet) -> Expr:
        """The digits after `\\u`: four, or a surrogate pair."""
        options: list[Expr] = []
        for low, high in charset.subtract(charset.intersect(chars, _BMP), _SURROGATES):
            options += _hex_range(low, high, 4)
        for low, high in charset.intersect(chars, ((0x10000, MAX_CODE_POINT),)):
            options += _pair_range(low - 0x10000, high - 0x10000)
        return options[0] if len(options) == 1 else self._rules.define("hex", choice(options), complete=True)


class EverySpelling(JsonText):
    """A JsonText with all spellings of JSON for each character."""

    def _has_all(self, chars: CharSet) -> bool:
        return True

    def literal(self, text: str) -> Expr:
        return sequence([self.chars(charset.of_chars(c)) for c in text])


class OneSpelling(JsonText):
    """A JsonText with one spelling for each character: escaped where JSON asks for it, as `json.dumps` does."""

    @cached_property
    def excluded(self) -> JsonText:
        return self

    def chars(self, chars: CharSet) -> Expr:
        expr = self._memo.get(chars)
        if expr is None:
            raw = charset.intersect(chars, _RAW)
            expr = choice([_one_of(raw)] if raw else [])
            special = charset.intersect(chars, _MUST_ESCAPE)
            if special:
                expr = self._rules.define("char", choice([expr, self._escape(special)]), complete=True)
            self._memo[chars] = expr
        return expr

    def _escape(self, chars: CharSet) -> Expr:
        short = [code for code in _SHORT_ESCAPES if charset.contains(chars, code)]
        coded = charset.subtract(chars, charset.char_set((code, code) for code in short))
        escaped: list[Expr] = []
        if short:
            escaped.append(_one_of(charset.of_chars("".join(_SHORT_ESCAPES[code] for code in short))))
        last_digits: dict[str, str] = {}
        for low, high in coded:
            for code in range(low, high + 1):
                digits = f"{code:04x}"
                last_digits[digits[:3]] = last_digits.get(digits[:3], "") + digits[3]
        for first, last in last_digits.items():
            escaped.append(sequence([Literal(f"u{first}"), _one_of(charset.of_chars(last))]))
        return sequence([Literal("\\"), choice(escaped)])


def _one_of(chars: CharSet) -> Expr:
    """A class, or the literal of a single character."""
    return Literal(chr(chars[0][0])) if chars[0][0] == chars[-1][1] else CharClass(chars)


def _hex_class(low: int, high: int) -> Expr:
    """One hex digit between two values, in either case."""
    ranges: list[tuple[int, int]] = []
    if low <= 9:
        ranges.append((0x30 + low, 0x30 + min(high, 9)))
    if high >= 10:
        first = max(low, 10) - 10
        ranges += [(0x41 + first, 0x37 + high), (0x61 + first, 0x57 + high)]
    return _one_of(charset.char_set(ranges))


def _split(low: int, high: int, unit: int) -> Iterator[tuple[int, int, int, int]]:
    """low..high as ranges of the quotient and of the rest by `unit`, which combine freely."""
    first, last = low // unit, high // unit
    if first == last:
        yield first, last, low % unit, high % unit
        return
    if low % unit:
        yield first, first, low % unit, unit - 1
        first += 1
    is_whole = high % unit == unit - 1
    if first <= last - (not is_whole):
        yield first, last - (not is_whole), 0, unit - 1
    if not is_whole:
        yield last, last, 0, high % unit


def _hex_range(low: int, high: int, digits: int) -> list[Expr]:
    """Fixed-width hex numbers from low to high."""
    if digits == 0:
        return [EMPTY]
    return [
        sequence([_hex_class(first, last), rest])
        for first, last, least, most in _split(low, high, 16 ** (digits - 1))
        for rest in _hex_range(least, most, digits - 1)
    ]


def _pair_range(low: int, high: int) -> list[Expr]:
    """Surrogate pairs for the offsets low..high above U+10000; the second `\\u` is included."""
    return [
        sequence([head, Literal("\\u"), choice(_hex_range(0xDC00 + least, 0xDC00 + most, 4))])
        for first, last, least, most in _split(low, high, 0x400)
        for head in _hex_range(0xD800 + first, 0xD800 + last, 4)
    ]
