"""Translates a JSON Schema to a grammar. Its last step writes the rules, with a work list instead of recursion."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from jan_serve.constraint import ast, charset
from jan_serve.constraint.ast import Expr, Literal, Mode, RuleRef, Terminal, Translated
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.to_grammar import dfa_to_expr, other_words_expr
from jan_serve.constraint.json_schema import ir
from jan_serve.constraint.json_schema.document import Document, as_object
from jan_serve.constraint.json_schema.emit_arrays import array_expr
from jan_serve.constraint.json_schema.emit_objects import object_expr
from jan_serve.constraint.json_schema.emit_strings import string_terminal
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import ArraySpec, Conj, TypeSets
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.number_text import MAX_FRACTION, MAX_WHOLE, number_dfa
from jan_serve.constraint.json_schema.scalars.numbers import NumberSpec
from jan_serve.constraint.json_schema.scalars.strings import StringSet
from jan_serve.constraint.json_schema.unique_locations import AlsoHeld, uniqueness_of
from jan_serve.constraint.limits import budget
from jan_serve.constraint.regex.language import structure_expr
from jan_serve.constraint.regex.syntax import parse_regex
from jan_serve.constraint.rules import RuleBuilder, prune
from jan_serve.constraint.text_form import JsonText, OneSpelling, PlainText
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


class Emitter:
    """Rules for one schema. `value` may be called at any time; `grammar` writes all requested rules."""

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
        """held: arrays whose items differ, although their schemas do not ask for it. crowds: whether names are compared
        where an object lists more members than a rule can remember."""
        self.expander = expander
        self.any_order = order is not PropertyOrder.SCHEMA and mode is not Mode.PRINTED
        self.others_last = order is PropertyOrder.LISTED
        self.rules = RuleBuilder()
        self.text = JsonText(self.rules)
        self.name_text = OneSpelling(self.rules) if mode.compares else self.text
        self.mode = mode
        self.compares_items = mode.compares and whitespace is not Whitespace.FLEXIBLE
        self.held = held
        self.crowds = crowds
        self.unique: dict[ArraySpec, tuple[ItemSet, ...]] = {}
        self.names_repeat = False
        """Whether some object in the grammar may have a name twice."""
        self.needs_comparison: UnsupportedSchema | None = None
        """Why nothing but compared names can hold the schema; raised in Mode.ALONE."""
        self.counted_names: list[tuple[ir.ObjectSpec, automata.Dfa]] = []
        """Objects whose names may run out, with all their names."""
        self.is_crowded = False
        """Whether some object is written so."""
        self.conj: Conj = ir.TRUE
        """The conjunction that is being written."""
        self.compared_at: Conj = ir.TRUE
        """The first place whose items or names the executor compares."""
        self._whitespace = whitespace
        self._shared: dict[str, RuleRef] = {}
        self._strings: dict[tuple[StringSet, JsonText], Expr] = {}
        self._keys: dict[str, Expr] = {}
        self._numbers: dict[NumberSpec, Expr] = {}
        self._containers: dict[int, tuple[TypeSets, RuleRef]] = {}
        self._values: dict[Conj, Expr] = {}
        self._todo: list[tuple[str, str, Conj, TypeSets]] = []

    def grammar(self, conj: Conj) -> ast.Grammar:
        """The grammar of one conjunction."""
        sets = self.expander.expand(conj)
        whole = "root"
        if self._whitespace is Whitespace.CONSISTENT and (sets.array or sets.object):
            whole = self.rules.reserve("whole")
            self.rules.fill("root", self.laid_out(RuleRef(whole)))
        self._values[conj] = RuleRef(whole)
        self._todo.append((whole, "root", conj, sets))
        return self._finished()

    def grammar_of(self, root: Expr) -> ast.Grammar:
        """The grammar of an expression that was made with this emitter."""
        self.rules.fill("root", root)
        return self._finished()

    def _finished(self) -> ast.Grammar:
        while self._todo:
            name, hint, self.conj, own = self._todo.pop()
            with ir.placed(self.conj):
                self.rules.fill(name, self.alternatives(own, hint))
        return ast.Grammar(self.rules.rules)

    def value(self, conj: Conj, hint: str) -> Expr:
        """The text of a value that satisfies `conj`; scalars in place, anything larger as a rule."""
        known = self._values.get(conj)
        if known is not None:
            return known
        sets = self.expander.expand(conj)
        if sets is ir.ANY_VALUE:
            expr: Expr = self.shared("value")
        elif not sets.array and not sets.object:
            with ir.placed(conj):
                expr = self.alternatives(sets, hint)
        else:
            expr = RuleRef(self.rules.reserve(hint))
            self._todo.append((expr.name, hint, conj, sets))
        self._values[conj] = expr
        return expr

    def alternatives(self, sets: TypeSets, hint: str) -> Expr:
        """The text of the values of all types, written in place."""
        if sets is ir.ANY_VALUE:
            return self.shared("value")
        options = [object_expr(self, spec, hint) for spec in sets.object]
        options += [array_expr(self, spec, hint) for spec in sets.array]
        if sets.string != strings.NO_STRING:
            options.append(self.string(sets.string, hint))
        options += [self.number(spec, hint) for spec in sets.number]
        if sets.boolean == ir.ANY_BOOLEAN:
            options.append(self.shared("boolean"))
        elif sets.boolean:
            options.append(Terminal(Literal("false" if sets.boolean == ir.FALSE_ONLY else "true")))
        if sets.null:
            options.append(Terminal(Literal("null")))
        return ast.choice(options)

    def containers(self, sets: TypeSets, hint: str) -> Expr:
        """The text of the arrays and objects, as a rule."""
        known = self._containers.get(id(sets))
        if known is None:
            known = self._containers[id(sets)] = sets, RuleRef(self.rules.reserve(hint))
            only = replace(ir.NO_VALUE, array=sets.array, object=sets.object)
            self.rules.fill(known[1].name, self.alternatives(only, hint))
        return known[1]

    # Scalars

    def string(self, allowed: StringSet, hint: str) -> Expr:
        """A JSON string whose decoded text is in the set."""
        return self._string(allowed, "string", self.text, hint)

    def name(self, allowed: StringSet, hint: str) -> Expr:
        """The name of a member that is not listed: in one spelling, if names are compared."""
        return self._string(allowed, "name" if self.mode.compares else "string", self.name_text, hint)

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> Expr:
        """A name of the set that is none of the words. An infinite set keeps some; a finite one is pruned if it does
        not."""
        language = strings.string_dfa(allowed)
        if self.mode is Mode.ENFORCED and automata.longest_word(language) is None:
            others = ast.Except(self.name(allowed, hint), tuple([self.key(word) for word in words]))
            return Terminal(others, lark_only=True)
        body = other_words_expr(words, language, self.name_text, self.rules, f"{hint}-name")
        return ast.terminal(ast.sequence([Literal('"'), body]))

    def key(self, name: str) -> Expr:
        """The name of a member that is listed: the same expression each time, so that it is printed once."""
        known = self._keys.get(name)
        if known is None:
            text = ast.sequence([Literal('"'), self.name_text.literal(name), Literal('"')])
            known = self._keys[name] = Terminal(text)
        return known

    def _string(self, allowed: StringSet, any_string: str, form: JsonText, hint: str) -> Expr:
        if isinstance(allowed, strings.AnyString):
            return self.shared(any_string)
        known = self._strings.get((allowed, form))
        if known is None:
            lark_only = self.mode is Mode.ENFORCED
            known = string_terminal(allowed, form, self.rules, hint, lark_only=lark_only)
            if not isinstance(allowed, strings.OneOfStrings) or len(allowed.values) > 1:
                known = self.rules.define(f"{hint}-string", known)
            self._strings[allowed, form] = known
        return known

    def number(self, spec: NumberSpec, hint: str) -> Expr:
        if spec in (NumberSpec(), NumberSpec(integer=True)):
            return self.shared("integer" if spec.integer else "number")
        known = self._numbers.get(spec)
        if known is None:
            known = self._number_terminal(spec, hint)
            if not (isinstance(known, Terminal) and isinstance(known.item, Literal)):
                known = self.rules.define(f"{hint}-number", known)
            self._numbers[spec] = known
        return known

    def _number_terminal(self, spec: NumberSpec, hint: str) -> Expr:
        language = number_dfa(spec)
        found = ast.terminal(dfa_to_expr(language, PlainText(), self.rules, f"{hint}-number"))
        if (
            self.mode is not Mode.ENFORCED
            or spec.multiples
            or spec.not_multiples
            or max(spec.low or 0, -(spec.high or 0)) > _BOUNDED
            or automata.longest_word(language) is not None
            or not isinstance(found, Terminal)
        ):
            return found
        return Terminal(ast.Both(found.item, _written(_FEW_DIGITS)), lark_only=True)

    # Punctuation

    def laid_out(self, expr: Expr) -> Expr:
        """The expression, which no layout is chosen for outside of it."""
        return ast.OneLayout(expr) if self._whitespace is Whitespace.CONSISTENT else expr

    def brackets(self, opening: str, items: Expr, closing: str, *, may_be_empty: bool) -> Expr:
        """items: at least one."""
        if self._whitespace is Whitespace.CONSISTENT:
            nothing = [Literal(opening + closing)] if may_be_empty else []
            return ast.choice([ast.brackets(opening, items, closing), *nothing])
        space = ast.EMPTY if self._whitespace is Whitespace.COMPACT else self.shared("ws")
        items = ast.sequence([items, space])
        if may_be_empty:
            items = ast.optional(items)
        return ast.sequence([Literal(opening), space, items, Literal(closing)])

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
                return ast.sequence([Literal(text), self.shared(space)])
            case Whitespace.CONSISTENT:
                return ast.Mark(text)

    # Rules that all schemas share

    def shared(self, name: str) -> RuleRef:
        ref = self._shared.get(name)
        if ref is None:
            ref = self._shared[name] = RuleRef(self.rules.reserve(name))
            self.rules.fill(ref.name, self._shared_body(name))
        return ref

    def _shared_body(self, name: str) -> Expr:
        match name:
            case "ws":
                indentation = ast.repeat(ast.CharClass(charset.of_chars("\t ")), 0, _MAX_INDENT)
                from_break = ast.sequence([Literal("\n"), indentation])
                return ast.optional(Terminal(ast.choice([Literal(" "), from_break])))
            case "after-colon":
                return ast.optional(Literal(" "))
            case "boolean":
                return ast.choice([Terminal(Literal("true")), Terminal(Literal("false"))])
            case "characters":
                return ast.sequence([ast.repeat(self.text.chars(charset.ANY), 0, None), Literal('"')])
            case "string":
                return Terminal(ast.sequence([Literal('"'), self.shared("characters")]))
            case "name":
                characters = ast.repeat(self.name_text.chars(charset.ANY), 0, None)
                return Terminal(ast.sequence([Literal('"'), characters, Literal('"')]))
            case "integer":
                return Terminal(_written(_INTEGER))
            case "number":
                return Terminal(_written(_NUMBER))
            case "object":
                return object_expr(self, ir.ANY_OBJECT[0], name)
            case "array":
                return array_expr(self, ir.ANY_ARRAY[0], name)
            case _:
                parts = ("object", "array", "string", "number", "boolean")
                return ast.choice([*(self.shared(part) for part in parts), Terminal(Literal("null"))])


@lru_cache(maxsize=8)
def _written(pattern: str) -> Expr:
    return structure_expr(parse_regex(pattern), PlainText())


def translate(
    schema: Any, *, whitespace: Whitespace, mode: Mode, order: PropertyOrder = PropertyOrder.SCHEMA
) -> Translated:
    """The grammar of the JSON texts that satisfy `schema`, if they also obey the uniqueness."""
    with budget(), ir.placed(ir.TRUE):
        document = Document(schema)
        expander = Expander(document)
        root = expander.terms.positive(document.root)
        held, crowds = frozenset[ArraySpec](), True
        while True:
            emitter = Emitter(
                expander, whitespace=whitespace, mode=mode, order=order, held=held, crowds=crowds
            )
            grammar = prune(emitter.grammar(root), emitter.rules.complete)
            if emitter.needs_comparison is not None:
                raise emitter.needs_comparison
            try:
                with ir.placed(emitter.compared_at):
                    uniqueness = uniqueness_of(expander, root, emitter)
                break
            except AlsoHeld as more:
                held |= more.specs
            except UnsupportedSchema:
                if not emitter.is_crowded:
                    raise
                crowds = False  # members of many names come in groups
    if grammar is None:
        culprit = next((keyword for keyword in as_object(schema) or {} if keyword in ASSERTIONS), "schema")
        keyword = "false" if schema is False else culprit
        raise UnsupportedSchema("", keyword, "no JSON value satisfies the schema")
    return Translated(grammar, uniqueness)
