"""Writes grammar rules for conjunctions: the last step of the translation, with a work list instead of recursion."""

from __future__ import annotations

from jan_serve.constraint import charset
from jan_serve.constraint.ast import (
    EMPTY,
    Both,
    CharClass,
    Except,
    Expr,
    Grammar,
    Literal,
    Mark,
    OneLayout,
    RuleRef,
    Token,
    brackets,
    choice,
    optional,
    repeat,
    sequence,
    token,
)
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.emit_arrays import array_expr
from jan_serve.constraint.json_schema.emit_objects import object_expr
from jan_serve.constraint.json_schema.emit_strings import string_token
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import (
    ANY_BOOLEAN,
    ANY_VALUE,
    FALSE_ONLY,
    ArraySpec,
    Conj,
    ObjectSpec,
    TypeSets,
    placed,
)
from jan_serve.constraint.json_schema.number_text import MAX_FRACTION, MAX_WHOLE, number_dfa
from jan_serve.constraint.json_schema.numbers import NumberSpec
from jan_serve.constraint.json_schema.strings import StringSet
from jan_serve.constraint.text_form import JsonText, OneSpelling, PlainText
from jan_serve.constraint.word_trie import OtherWords
from jan_serve.core.constraint import Whitespace
from jan_serve.core.text_memory import ItemTexts
from jan_serve.errors import UnsupportedSchema

# Digits can be bounded of numbers that may be this large.
_FEW_DIGITS = 10**60
# Indentation after a line break; deeper documents than this need `compact`.
_MAX_INDENT = 32


class Emitter:
    """Rules for one schema. `value` may be called at any time; `finish` writes all requested rules."""

    def __init__(
        self,
        expander: Expander,
        *,
        whitespace: Whitespace,
        remembers: bool = False,
        complements: bool = False,
    ) -> None:
        """remembers: names of objects and items of `unique` may repeat in the grammar; the executor sees to it that
        they do not. complements: the grammar may have `Except` and `Both`; only if it remembers."""
        self.expander = expander
        self.rules = RuleBuilder()
        self.text = JsonText(self.rules)
        self.name_text = OneSpelling(self.rules) if remembers else self.text
        self.remembers = remembers
        self._complements = complements
        self.remembers_items = remembers and whitespace is not Whitespace.FLEXIBLE
        self.unique: dict[ArraySpec, ItemTexts] = {}
        self.names_repeat = False
        """Whether some object in the grammar may have a name twice."""
        self.needs_memory: UnsupportedSchema | None = None
        """Raised for the grammar if nothing remembers names."""
        self.counted_names: list[ObjectSpec] = []
        """Objects whose other names may run out."""
        self._whitespace = whitespace
        self._plain = PlainText()
        self._names: dict[Conj, Expr] = {}
        self._todo: list[tuple[str, str, Conj, TypeSets]] = []
        self._shared: dict[str, RuleRef] = {}
        self._strings: dict[tuple[StringSet, JsonText], Expr] = {}
        self._keys: dict[str, Expr] = {}
        self._numbers: dict[NumberSpec, Expr] = {}
        self.rules.reserve("root")
        self.other_words = OtherWords(self.name_text, self.rules)

    def grammar(self, conj: Conj) -> Grammar:
        """The grammar of one conjunction."""
        sets = self.expander.expand(conj)
        whole = "root"
        if self._whitespace is Whitespace.CONSISTENT and (sets.array or sets.object):
            whole = self.rules.reserve("whole")
            self.rules.fill("root", self.laid_out(RuleRef(whole)))
        self._names[conj] = RuleRef(whole)
        self._todo.append((whole, "root", conj, sets))
        return self._finished()

    def grammar_of(self, root: Expr) -> Grammar:
        """The grammar of an expression that was made with this emitter."""
        self.rules.fill("root", root)
        return self._finished()

    def _finished(self) -> Grammar:
        while self._todo:
            name, hint, conj, own = self._todo.pop()
            with placed(conj):
                self.rules.fill(name, self.alternatives(own, hint))
        return self.rules.grammar("root")

    def value(self, conj: Conj, hint: str) -> Expr:
        """The text of a value that satisfies `conj`; scalars in place, anything larger as a rule."""
        known = self._names.get(conj)
        if known is not None:
            return known
        sets = self.expander.expand(conj)
        if sets is ANY_VALUE:
            expr: Expr = self.any_value()
        elif not sets.array and not sets.object:
            with placed(conj):
                expr = self.alternatives(sets, hint)
        else:
            name = self.rules.reserve(hint)
            expr = RuleRef(name)
            self._todo.append((name, hint, conj, sets))
        self._names[conj] = expr
        return expr

    def alternatives(self, sets: TypeSets, hint: str) -> Expr:
        """The text of the values of all types, written in place."""
        if sets is ANY_VALUE:
            return self.any_value()
        options: list[Expr] = []
        options += [object_expr(self, spec, hint) for spec in sets.object]
        options += [array_expr(self, spec, hint) for spec in sets.array]
        if sets.string != strings.NO_STRING:
            options.append(self.string(sets.string, hint))
        options += [self.number(spec, hint) for spec in sets.number]
        if sets.boolean == ANY_BOOLEAN:
            options.append(self.shared("boolean"))
        elif sets.boolean:
            options.append(Token(Literal("false" if sets.boolean == FALSE_ONLY else "true")))
        if sets.null:
            options.append(Token(Literal("null")))
        return choice(options)

    def string(self, allowed: StringSet, hint: str) -> Expr:
        """A JSON string whose decoded text is in the set."""
        if isinstance(allowed, strings.AnyString):
            return self.shared("string")
        return self._string(allowed, self.text, hint)

    def name(self, allowed: StringSet, hint: str) -> Expr:
        """The name of a member that is not listed: in one spelling, if it is remembered."""
        if isinstance(allowed, strings.AnyString):
            return self.shared("name" if self.remembers else "string")
        return self._string(allowed, self.name_text, hint)

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> Expr:
        """A name of the set that is none of the words. An infinite set keeps some; a finite one is pruned if it does
        not."""
        language = strings.string_dfa(allowed)
        if self._complements and automata.longest_word(language) is None:
            others = Except(self.name(allowed, hint), tuple([self.key(word) for word in words]))
            return Token(others, is_terminal=True)
        body = self.other_words.expr(words, language, f"{hint}-name")
        return token(sequence([Literal('"'), body]))

    def key(self, name: str) -> Expr:
        """The name of a member that is listed: the same expression each time, so that it is printed once."""
        known = self._keys.get(name)
        if known is None:
            known = self._keys[name] = Token(
                sequence([Literal('"'), self.name_text.literal(name), Literal('"')])
            )
        return known

    def _string(self, allowed: StringSet, form: JsonText, hint: str) -> Expr:
        known = self._strings.get((allowed, form))
        if known is None:
            known = self._strings[allowed, form] = string_token(
                allowed, form, self.rules, hint, terminals=self._complements
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
            known = self._number_token(spec, hint)
            if not (isinstance(known, Token) and isinstance(known.item, Literal)):
                known = self.rules.define(f"{hint}-number", known)
            self._numbers[spec] = known
        return known

    def any_value(self) -> Expr:
        return self.shared("value")

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

    def _number_token(self, spec: NumberSpec, hint: str) -> Expr:
        language = number_dfa(spec)
        found = token(dfa_to_expr(language, self._plain, self.rules, f"{hint}-number"))
        if (
            not self._complements
            or spec.multiples
            or spec.not_multiples
            or max(spec.low or 0, -(spec.high or 0)) > _FEW_DIGITS
            or automata.longest_word(language) is not None
            or not isinstance(found, Token)
        ):
            return found
        # Weak models repeat digits without end.
        rest = repeat(_class("0123456789.eE+-"), 0, None)
        whole = [repeat(Literal("-"), 0, 1), repeat(_class("0-9"), 1, MAX_WHOLE)]
        bounded = sequence([*whole, repeat(sequence([_class(".eE"), rest]), 0, 1)])
        return Token(Both(found.item, bounded), is_terminal=True)

    def shared(self, name: str) -> RuleRef:
        """A rule shared by all schemas."""
        ref = self._shared.get(name)
        if ref is None:
            ref = self._shared[name] = RuleRef(self.rules.reserve(name))
            self.rules.fill(ref.name, self._shared_body(name))
        return ref

    def _shared_body(self, name: str) -> Expr:
        if name == "ws":
            from_break = sequence([Literal("\n"), repeat(_class("\t "), 0, _MAX_INDENT)])
            return repeat(Token(choice([Literal(" "), from_break])), 0, 1)
        if name == "after-colon":
            return repeat(Literal(" "), 0, 1)
        if name == "boolean":
            return choice([Token(Literal("true")), Token(Literal("false"))])
        if name == "characters":
            return sequence([repeat(self.text.chars(charset.ANY), 0, None), Literal('"')])
        if name == "string":
            return Token(sequence([Literal('"'), self.shared("characters")]))
        if name == "name":
            characters = repeat(self.name_text.chars(charset.ANY), 0, None)
            return Token(sequence([Literal('"'), characters, Literal('"')]))
        if name == "integer":
            return Token(self._whole_body())
        if name == "unsigned":
            return choice([Literal("0"), sequence([_class("1-9"), repeat(_class("0-9"), 0, MAX_WHOLE - 1)])])
        if name == "number":
            return self._number_body()
        if name == "object":
            return object_expr(self, ANY_VALUE.object[0], name)
        if name == "array":
            return array_expr(self, ANY_VALUE.array[0], name)
        assert name == "value"
        parts = ("object", "array", "string", "number", "boolean")
        return choice([*(self.shared(part) for part in parts), Token(Literal("null"))])

    def _whole_body(self) -> Expr:
        return sequence([repeat(Literal("-"), 0, 1), self.shared("unsigned")])

    def _number_body(self) -> Expr:
        digits = repeat(_class("0-9"), 1, MAX_FRACTION)
        fraction = repeat(sequence([Literal("."), digits]), 0, 1)
        e, plus, minus = _class("Ee"), repeat(Literal("+"), 0, 1), Literal("-")
        two, three = repeat(_class("0-9"), 1, 2), sequence([_class("1-2"), repeat(_class("0-9"), 2, 2)])
        small = sequence([e, choice([sequence([repeat(_class("+-"), 0, 1), two]), sequence([minus, three])])])
        small = choice([small, sequence([e, minus, Literal("30"), _class("0-8")])])
        # A double holds one digit before the point with these.
        large = sequence([e, plus, choice([three, sequence([Literal("30"), _class("0-7")])])])
        return Token(
            choice(
                [
                    sequence([self._whole_body(), fraction, repeat(small, 0, 1)]),
                    sequence([repeat(Literal("-"), 0, 1), _class("0-9"), fraction, large]),
                ]
            )
        )


def _class(spelled: str) -> Expr:
    """A character class written as `a-z` or as its members."""
    if len(spelled) == 3 and spelled[1] == "-":
        return CharClass(((ord(spelled[0]), ord(spelled[2])),))
    return CharClass(charset.of_chars(spelled))
