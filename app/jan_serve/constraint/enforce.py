"""The entrance of this package: a constraint as the engine enforces it, and as people are shown it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from jan_serve.constraint.ast import Grammar, Mode, OneLayout, Translated, Unordered
from jan_serve.constraint.json_schema.ir import TRUE, placed
from jan_serve.constraint.json_schema.translate import translate as translate_schema
from jan_serve.constraint.lark.notation import is_indented
from jan_serve.constraint.lark.print_lark import OnlyCharacters, print_lark_open
from jan_serve.constraint.lark.references import by_content
from jan_serve.constraint.limits import spent
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.constraint.regex.language import translate as translate_regex
from jan_serve.constraint.rules import has_lark_only, has_node
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    GrammarPiece,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    Whitespace,
)
from jan_serve.core.uniqueness import NOWHERE
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema


@contextmanager
def paused_collection() -> Generator[None]:
    """No cyclic collection inside the block, if it was on outside. Safe to nest and to use from several threads."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


Translate = Callable[[Mode], Translated]

_ANY_OBJECT: Final = {"type": "object"}


class Cost(NamedTuple):
    """steps: of the translation, of MAX_STEPS. unique_arrays: places whose items are compared beside the grammar."""

    steps: int
    rules: int
    lark_bytes: int
    unique_arrays: int


class Enforced(NamedTuple):
    """compiled: what the engine needs. grammar: what it prints. most: as in Translated."""

    compiled: CompiledGrammar
    grammar: Grammar
    most: dict[str, int]
    cost: Cost
    translate: Translate

    def piece(self) -> GrammarPiece:
        """The constraint as a part of a larger grammar."""
        return by_content(self.compiled)

    def gbnf(self) -> str:
        """The same grammar as GBNF, with comments that say what GBNF leaves out. Raises GrammarTooComplex."""
        try:
            with paused_collection():
                return self._gbnf()
        except (GrammarTooComplex, UnsupportedSchema) as error:
            reason = f"the server takes this as Lark, and GBNF cannot say it: {error.reason}"
            raise GrammarTooComplex(reason, pointer=error.pointer) from None

    def _gbnf(self) -> str:
        grammar = self.grammar
        if has_lark_only(grammar) or has_node(grammar, Unordered):
            grammar = self.translate(Mode.PRINTED).grammar
        return "".join(f"# {line}\n" for line in self._left_out()) + print_gbnf(grammar)

    def _left_out(self) -> Iterator[str]:
        if has_node(self.grammar, OneLayout):
            indented = ", and also takes JSON that is indented by 2 spaces, 4 spaces or a tab"
            more = indented if is_indented(self.compiled.lark) else ""
            yield f"The server keeps one layout throughout{more}: GBNF cannot say that."
        if has_node(self.grammar, Unordered):
            yield "The server also takes the properties in any order: GBNF cannot say that."
        if has_lark_only(self.grammar):
            more = "may take more escapes in strings and bound the digits of numbers"
            yield f"The server runs this as Lark, whose terminals {more}."
        unique = self.compiled.uniqueness
        if unique is not None and unique.names_repeat:
            yield "The server also lets no object have a name twice: GBNF cannot say that."
        if self.cost.unique_arrays:
            yield "The server also lets no item of an array with `uniqueItems` repeat: GBNF cannot say that."


def enforce(constraint: Constraint, *, alone: bool = False, terminals: bool = True) -> Enforced:
    """Translate and print. Bounded work; blocks for less than half a second. A JSON Schema (drafts 4 to 2020-12) is
    enforced exactly, or refused. An expression of ECMA-262 matches from end to end. alone: nothing compares names and
    items beside the grammar; what needs that is refused. terminals: as in `print_lark_open`. Raises UnsupportedSchema
    (pointer, keyword, reason), InvalidSchema, UnsupportedPattern, InvalidGrammar, and GrammarTooComplex above a limit.
    A grammar over llguidance's limits is refused too: llama.cpp's sampler is no substitute, since it has no limits,
    and a short grammar can fill its memory or never end."""
    translate, is_json = _translation(constraint)
    mode = Mode.ALONE if alone or not is_json else Mode.ENFORCED
    return enforce_translation(translate, mode=mode, terminals=terminals)


def enforce_translation(
    translate: Translate, *, mode: Mode = Mode.ENFORCED, terminals: bool = True
) -> Enforced:
    """See `enforce`, with a translation of the caller's. Where terminals are too large, it is asked for rules."""
    with paused_collection():
        # In a function of its own: its objects are gone when the collector looks again.
        return _enforced(translate, mode, terminals)


def _enforced(translate: Translate, mode: Mode, terminals: bool) -> Enforced:
    found = translate(mode)
    try:
        printed = print_open(found.grammar, terminals=terminals)
    except GrammarTooComplex as error:
        if mode is not Mode.ENFORCED:
            raise
        found = translate(Mode.IN_RULES)
        with placed(TRUE):
            printed = print_open(found.grammar, terminals=terminals and not isinstance(error, OnlyCharacters))
    uniqueness = found.uniqueness
    unique_arrays = sum(at.unique != NOWHERE for at in uniqueness.locations) if uniqueness else 0
    cost = Cost(spent(), len(found.grammar.rules), len(printed.lark), unique_arrays)
    return Enforced(replace(printed, uniqueness=uniqueness), found.grammar, found.most, cost, translate)


def print_open(
    grammar: Grammar, *, terminals: bool = True, holes: Mapping[str, str] | None = None
) -> CompiledGrammar:
    """See `print_lark_open`; without terminals if they are too large."""
    try:
        return print_lark_open(grammar, terminals=terminals, holes=holes)
    except GrammarTooComplex:
        if not terminals:
            raise
    # Terminals of many characters can be far longer than the rules that they replace.
    return print_lark_open(grammar, terminals=False, holes=holes)


def _translation(constraint: Constraint) -> tuple[Translate, bool]:
    """The translation of a constraint, and whether it is one of JSON."""
    match constraint:
        case JsonObjectConstraint(whitespace=whitespace):
            return _schema_translation(_ANY_OBJECT, whitespace, None), True
        case JsonSchemaConstraint(schema=schema, whitespace=whitespace, property_order=order):
            return _schema_translation(schema, whitespace, order), True
        case RegexConstraint(pattern=pattern):
            return lambda _: Translated(translate_regex(pattern)), False
        case GbnfConstraint(text=text):
            return lambda _: Translated(parse_gbnf(text)), False


def _schema_translation(schema: Any, whitespace: Whitespace | None, order: PropertyOrder | None) -> Translate:
    return lambda mode: translate_schema(
        schema,
        whitespace=whitespace or Whitespace.CONSISTENT,
        mode=mode,
        order=order or PropertyOrder.SCHEMA,
    )
