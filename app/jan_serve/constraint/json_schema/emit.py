"""Writes grammar rules for conjunctions: the last step of the translation, with a work list instead of recursion."""

from __future__ import annotations

from jan_serve.constraint.ast import Expr, Grammar, Literal, RuleRef, Terminal, choice
from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.emit_arrays import array_expr
from jan_serve.constraint.json_schema.emit_objects import object_expr
from jan_serve.constraint.json_schema.emitter import Emitter
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import ANY_BOOLEAN, ANY_VALUE, FALSE_ONLY, Conj, TypeSets, placed
from jan_serve.constraint.mode import Mode
from jan_serve.core.constraint import Whitespace


class ValueEmitter(Emitter):
    """Rules for one schema. `value` may be called at any time; `grammar` writes all requested rules."""

    def __init__(self, expander: Expander, *, whitespace: Whitespace, mode: Mode = Mode.ALONE) -> None:
        super().__init__(expander, whitespace=whitespace, mode=mode)
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
            name, hint, conj, own = self._todo.pop()
            with placed(conj):
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

    def any_container(self, name: str) -> Expr:
        if name == "object":
            return object_expr(self, ANY_VALUE.object[0], name)
        return array_expr(self, ANY_VALUE.array[0], name)
