"""This module translates a JSON Schema to a grammar.

Its last step writes the rules, with a work list instead of recursion.

In place of JSON it can write bare keys and raw strings between quotes, `{k:1,l:[<|"|>x<|"|>]}`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from jan_serve.constraint.ast import Expr, Grammar, Literal, RuleRef, Special, Terminal, choice, sequence
from jan_serve.constraint.json_schema.document import Document, as_object
from jan_serve.constraint.json_schema.emit_arrays import array_expr
from jan_serve.constraint.json_schema.emit_objects import object_expr
from jan_serve.constraint.json_schema.emit_strings import RawStop, raw_text, text_until
from jan_serve.constraint.json_schema.emitter import Emitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import (
    ANY_BOOLEAN,
    ANY_VALUE,
    FALSE_ONLY,
    NO_VALUE,
    TRUE,
    ArraySpec,
    Conj,
    TypeSets,
    placed,
)
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, StringSet
from jan_serve.constraint.json_schema.unique_locations import AlsoHeld, uniqueness_of
from jan_serve.constraint.limits import budget
from jan_serve.constraint.transform import prune
from jan_serve.constraint.translation import Mode, Translated
from jan_serve.core.constraint import PropertyOrder, Whitespace
from jan_serve.errors import UnsupportedSchema


class ValueEmitter(Emitter):
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
        super().__init__(expander, whitespace=whitespace, mode=mode, order=order, held=held, crowds=crowds)
        self._containers: dict[int, tuple[TypeSets, RuleRef]] = {}
        self._names: dict[Conj, Expr] = {}
        self._todo: list[tuple[str, str, Conj, TypeSets]] = []

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
            name, hint, self.conj, own = self._todo.pop()
            with placed(self.conj):
                self.rules.fill(name, self.alternatives(own, hint))
        return self.rules.grammar("root")

    def value(self, conj: Conj, hint: str) -> Expr:
        known = self._names.get(conj)
        if known is not None:
            return known
        sets = self.expander.expand(conj)
        if sets is ANY_VALUE:
            expr: Expr = self.shared("value")
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
        if sets is ANY_VALUE:
            return self.shared("value")
        options: list[Expr] = []
        options += [object_expr(self, spec, hint) for spec in sets.object]
        options += [array_expr(self, spec, hint) for spec in sets.array]
        if sets.string != strings.NO_STRING:
            options.append(self.string(sets.string, hint))
        options += [self.number(spec, hint) for spec in sets.number]
        if sets.boolean == ANY_BOOLEAN:
            options.append(self.shared("boolean"))
        elif sets.boolean:
            options.append(Terminal(Literal("false" if sets.boolean == FALSE_ONLY else "true")))
        if sets.null:
            options.append(Terminal(Literal("null")))
        return choice(options)

    def containers(self, sets: TypeSets, hint: str) -> Expr:
        known = self._containers.get(id(sets))
        if known is None:
            known = self._containers[id(sets)] = sets, RuleRef(self.rules.reserve(hint))
            only = replace(NO_VALUE, array=sets.array, object=sets.object)
            self.rules.fill(known[1].name, self.alternatives(only, hint))
        return known[1]

    def any_container(self, name: str) -> Expr:
        if name == "object":
            return object_expr(self, ANY_VALUE.object[0], name)
        return array_expr(self, ANY_VALUE.array[0], name)


def translate(
    schema: Any, *, whitespace: Whitespace, mode: Mode, order: PropertyOrder = PropertyOrder.SCHEMA
) -> Translated:
    """The grammar of the JSON texts that satisfy `schema`, if they also obey the uniqueness."""
    with budget(), placed(TRUE):
        document = Document(schema)
        expander = Expander(document)
        root = expander.terms.positive(document.root)
        held, crowds = frozenset[ArraySpec](), True
        while True:
            emitter = ValueEmitter(
                expander, whitespace=whitespace, mode=mode, order=order, held=held, crowds=crowds
            )
            grammar = prune(emitter.grammar(root), emitter.rules.complete)
            if emitter.needs_comparison is not None:
                raise emitter.needs_comparison
            try:
                with placed(emitter.compared_at):
                    uniqueness = uniqueness_of(expander, root, emitter)
                break
            except AlsoHeld as more:
                held |= more.specs
            except UnsupportedSchema:
                if not emitter.is_crowded:
                    raise
                crowds = False  # members of many names come in groups
    if grammar is None:
        raise UnsupportedSchema("", _culprit(schema), "no JSON value satisfies the schema")
    return Translated(grammar, uniqueness)


def _culprit(schema: Any) -> str:
    members = as_object(schema)
    if members is None:
        return "false"
    return next((keyword for keyword in members if keyword in ASSERTIONS), "schema")


_BARE: Final = strings.Pattern(r"""^[^\s\u0000-\u0020\u007f-\u00a0,:\[\](){}'"<]+$""")


def is_bare(name: str) -> bool:
    """Whether a name is read as one without quotes around it."""
    return strings.contains(_BARE, name)


class BareKeyEmitter(ValueEmitter):
    """Writes objects on one line. A name that does not read as one word stands between quotes."""

    def __init__(self, expander: Expander, *, order: PropertyOrder, quote: Expr, stop: str) -> None:
        """quote: around strings. stop: its text, which no string contains."""
        super().__init__(expander, whitespace=Whitespace.COMPACT, order=order)
        self._quote = quote
        self._stop = stop

    def string(self, allowed: StringSet, hint: str) -> Expr:
        if isinstance(allowed, strings.AnyString):
            return self.shared("string")
        return self._quoted(allowed, hint)

    def name(self, allowed: StringSet, hint: str) -> Expr:
        bare = strings.intersect(allowed, _BARE)
        return choice([raw_text(bare, self._stop, self.rules, f"{hint}-bare"), self.string(allowed, hint)])

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> Expr:
        return self.name(strings.intersect(allowed, strings.complement(strings.OneOfStrings(words))), hint)

    def key(self, name: str) -> Expr:
        return Literal(name) if is_bare(name) else self._quoted(strings.OneOfStrings((name,)), name)

    def _shared_body(self, name: str) -> Expr:
        return self._quoted(ANY_STRING, name) if name == "string" else super()._shared_body(name)

    def _quoted(self, allowed: StringSet, hint: str) -> Expr:
        until = text_until(
            allowed, RawStop(self._stop, self._stop if isinstance(self._quote, Special) else "")
        )
        if until is not None:
            return sequence([self._quote, until])
        return sequence([self._quote, raw_text(allowed, self._stop, self.rules, hint), self._quote])
