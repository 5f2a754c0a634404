"""What values are written with: names, strings, numbers, punctuation, and the rules that all schemas share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING

from jan_serve.constraint import charset
from jan_serve.constraint.ast import (
    EMPTY,
    Both,
    CharClass,
    Except,
    Expr,
    Literal,
    Mark,
    OneLayout,
    RuleRef,
    Terminal,
    brackets,
    choice,
    optional,
    repeat,
    sequence,
    terminal,
)
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.json_schema.emit_strings import string_terminal
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import TRUE, ArraySpec, Conj, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.number_text import MAX_FRACTION, MAX_WHOLE, number_dfa
from jan_serve.constraint.json_schema.scalars.numbers import NumberSpec
from jan_serve.constraint.json_schema.scalars.strings import StringSet
from jan_serve.constraint.regex.parse import parse_regex
from jan_serve.constraint.regex.translate import structure_expr
from jan_serve.constraint.text_form import JsonText, OneSpelling, PlainText
from jan_serve.constraint.translation import Mode
from jan_serve.constraint.word_trie import other_words_expr
from jan_serve.core.constraint import PropertyOrder, Whitespace
from jan_serve.errors import UnsupportedSchema

if TYPE_CHECKING:
    from jan_serve.constraint.json_schema.unique_items import ItemSet

# Digits can be bounded of numbers that may be this large.
_BOUNDED = 10**60
_INTEGER = f"-?(?:0|[1-9][0-9]{{0,{MAX_WHOLE - 1}}})"
_FRACTION = f"(?:\\.[0-9]{{1,{MAX_FRACTION}}})?"
# A double holds one digit before the point with exponents of three digits, which may be those below 1.
_NUMBER = (
    f"{_INTEGER}{_FRACTION}(?:[Ee][+-]?[0-9]{{1,2}}|[Ee]-[1-2][0-9]{{2}}|[Ee]-30[0-8])?"
    f"|-?[0-9]{_FRACTION}[Ee]\\+?(?:[1-2][0-9]{{2}}|30[0-7])"
)
# Weak models repeat digits without end.
_FEW_DIGITS = f"-?[0-9]{{1,{MAX_WHOLE}}}(?:[.eE][0-9.eE+-]*)?"
# Indentation after a line break; deeper documents than this need `compact`.
_MAX_INDENT = 32


class Emitter(ABC):
    """What the objects and arrays of one schema are written with."""

    def __init__(
        self,
        expander: Expander,
        *,
        whitespace: Whitespace,
        mode: Mode = Mode.ALONE,
        order: PropertyOrder = PropertyOrder.SCHEMA,
        held: frozenset[ArraySpec] = frozenset(),
        crowds: bool = True,
    ) -> None:
        self.expander = expander
        self.any_order = order is not PropertyOrder.SCHEMA and mode is not Mode.PRINTED
        self.others_last = order is PropertyOrder.LISTED
        self.rules = RuleBuilder()
        self.text = JsonText(self.rules)
        self.name_text = OneSpelling(self.rules) if mode.compares else self.text
        self.mode = mode
        self.compares_items = mode.compares and whitespace is not Whitespace.FLEXIBLE
        self.held = held
        """Arrays whose items differ, although their schemas do not ask for it."""
        self.unique: dict[ArraySpec, tuple[ItemSet, ...]] = {}
        self.names_repeat = False
        """Whether some object in the grammar may have a name twice."""
        self.needs_comparison: UnsupportedSchema | None = None
        """Why nothing but compared names can hold the schema; raised in Mode.ALONE."""
        self.counted_names: list[tuple[ObjectSpec, Dfa]] = []
        """Objects whose names may run out, with all their names."""
        self.crowds = crowds
        """Whether names are compared where an object lists more members than a rule can remember."""
        self.is_crowded = False
        """Whether some object is written so."""
        self.conj: Conj = TRUE
        """The conjunction that is being written."""
        self.compared_at: Conj = TRUE
        """The first place whose items or names the executor compares."""
        self._whitespace = whitespace
        self._plain = PlainText()
        self._shared: dict[str, RuleRef] = {}
        self._strings: dict[tuple[StringSet, JsonText], Expr] = {}
        self._keys: dict[str, Expr] = {}
        self._numbers: dict[NumberSpec, Expr] = {}
        self.rules.reserve("root")

    @abstractmethod
    def value(self, conj: Conj, hint: str) -> Expr:
        """The text of a value that satisfies `conj`; scalars in place, anything larger as a rule."""

    @abstractmethod
    def alternatives(self, sets: TypeSets, hint: str) -> Expr:
        """The text of the values of all types, written in place."""

    @abstractmethod
    def containers(self, sets: TypeSets, hint: str) -> Expr:
        """The text of the arrays and objects, as a rule."""

    @abstractmethod
    def any_container(self, name: str) -> Expr:
        """Any `object` or any `array`."""

    def string(self, allowed: StringSet, hint: str) -> Expr:
        """A JSON string whose decoded text is in the set."""
        if isinstance(allowed, strings.AnyString):
            return self.shared("string")
        return self._string(allowed, self.text, hint)

    def name(self, allowed: StringSet, hint: str) -> Expr:
        """The name of a member that is not listed: in one spelling, if names are compared."""
        if isinstance(allowed, strings.AnyString):
            return self.shared("name" if self.mode.compares else "string")
        return self._string(allowed, self.name_text, hint)

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> Expr:
        """A name of the set that is none of the words. An infinite set keeps some; a finite one is pruned if it does
        not."""
        language = strings.string_dfa(allowed)
        if self.mode is Mode.ENFORCED and automata.longest_word(language) is None:
            others = Except(self.name(allowed, hint), tuple([self.key(word) for word in words]))
            return Terminal(others, lark_only=True)
        body = other_words_expr(words, language, self.name_text, self.rules, f"{hint}-name")
        return terminal(sequence([Literal('"'), body]))

    def key(self, name: str) -> Expr:
        """The name of a member that is listed: the same expression each time, so that it is printed once."""
        known = self._keys.get(name)
        if known is None:
            known = self._keys[name] = Terminal(
                sequence([Literal('"'), self.name_text.literal(name), Literal('"')])
            )
        return known

    def _string(self, allowed: StringSet, form: JsonText, hint: str) -> Expr:
        known = self._strings.get((allowed, form))
        if known is None:
            known = self._strings[allowed, form] = string_terminal(
                allowed, form, self.rules, hint, lark_only=self.mode is Mode.ENFORCED
            )
            if not isinstance(allowed, strings.OneOfStrings) or len(allowed.values) > 1:
                known = self._strings[allowed, form] = self.rules.define(f"{hint}-string", known)
        return known

    def number(self, spec: NumberSpec, hint: str) -> Expr:
        if spec == NumberSpec():
            return self.shared("number")
        if spec == NumberSpec(integer=True):
            return self.shared("integer")
        known = self._numbers.get(spec)
        if known is None:
            known = self._number_terminal(spec, hint)
            if not (isinstance(known, Terminal) and isinstance(known.item, Literal)):
                known = self.rules.define(f"{hint}-number", known)
            self._numbers[spec] = known
        return known

    # Punctuation

    def laid_out(self, expr: Expr) -> Expr:
        """The expression, which no layout is chosen for outside of it."""
        return OneLayout(expr) if self._whitespace is Whitespace.CONSISTENT else expr

    def brackets(self, opening: str, items: Expr, closing: str, *, may_be_empty: bool) -> Expr:
        """items: at least one."""
        if self._whitespace is Whitespace.CONSISTENT:
            nothing = [Literal(opening + closing)] if may_be_empty else []
            return choice([brackets(opening, items, closing), *nothing])
        space = EMPTY if self._whitespace is Whitespace.COMPACT else self.shared("ws")
        items = sequence([items, space])
        return sequence(
            [Literal(opening), space, optional(items) if may_be_empty else items, Literal(closing)]
        )

    def comma(self) -> Expr:
        return self._mark(",", "ws")

    def colon(self) -> Expr:
        """Between a name and its value."""
        return self._mark(":", "after-colon")

    def _mark(self, text: str, space: str) -> Expr:
        match self._whitespace:
            case Whitespace.COMPACT:
                return Literal(text)
            case Whitespace.FLEXIBLE:
                return sequence([Literal(text), self.shared(space)])
            case Whitespace.CONSISTENT:
                return Mark(text)

    def _number_terminal(self, spec: NumberSpec, hint: str) -> Expr:
        language = number_dfa(spec)
        found = terminal(dfa_to_expr(language, self._plain, self.rules, f"{hint}-number"))
        if (
            self.mode is not Mode.ENFORCED
            or spec.multiples
            or spec.not_multiples
            or max(spec.low or 0, -(spec.high or 0)) > _BOUNDED
            or automata.longest_word(language) is not None
            or not isinstance(found, Terminal)
        ):
            return found
        return Terminal(Both(found.item, _written(_FEW_DIGITS)), lark_only=True)

    def shared(self, name: str) -> RuleRef:
        """A rule shared by all schemas."""
        ref = self._shared.get(name)
        if ref is None:
            ref = self._shared[name] = RuleRef(self.rules.reserve(name))
            self.rules.fill(ref.name, self._shared_body(name))
        return ref

    def _shared_body(self, name: str) -> Expr:
        if name == "ws":
            from_break = sequence([Literal("\n"), repeat(CharClass(charset.of_chars("\t ")), 0, _MAX_INDENT)])
            return repeat(Terminal(choice([Literal(" "), from_break])), 0, 1)
        if name == "after-colon":
            return repeat(Literal(" "), 0, 1)
        if name == "boolean":
            return choice([Terminal(Literal("true")), Terminal(Literal("false"))])
        if name == "characters":
            return sequence([repeat(self.text.chars(charset.ANY), 0, None), Literal('"')])
        if name == "string":
            return Terminal(sequence([Literal('"'), self.shared("characters")]))
        if name == "name":
            characters = repeat(self.name_text.chars(charset.ANY), 0, None)
            return Terminal(sequence([Literal('"'), characters, Literal('"')]))
        if name == "integer":
            return Terminal(_written(_INTEGER))
        if name == "number":
            return Terminal(_written(_NUMBER))
        if name in ("object", "array"):
            return self.any_container(name)
        assert name == "value"
        parts = ("object", "array", "string", "number", "boolean")
        return choice([*(self.shared(part) for part in parts), Terminal(Literal("null"))])


@lru_cache(maxsize=8)
def _written(pattern: str) -> Expr:
    return structure_expr(parse_regex(pattern), PlainText())
