"""The arguments of a function call in the notations that models write beside JSON: tags, keywords, bare keys. Narrower
than the JSON translation, never wider: it leaves out unlisted names, names that the notation cannot hold, and what a
reader of the notation would take for a value of another type."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from jan_serve.constraint import ast, charset
from jan_serve.constraint.ast import Translated
from jan_serve.constraint.json_schema import ir
from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.emit_objects import Field, Shape, members_in_any_order, plain_members
from jan_serve.constraint.json_schema.emit_strings import (
    MOST_NEEDED_RAW,
    RawStop,
    raw_text,
    string_expr,
    text_until,
)
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.numbers import NumberSpec, intersect
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, NO_STRING, StringSet
from jan_serve.constraint.json_schema.translate import Emitter
from jan_serve.constraint.limits import budget
from jan_serve.constraint.rules import prune
from jan_serve.constraint.text_form import PlainText, SingleQuoted
from jan_serve.core.constraint import PropertyOrder, Whitespace
from jan_serve.errors import UnsupportedSchema

_NAME = ast.repeat(
    ast.CharClass(charset.of_chars("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")), 1, 64
)
_LONG_MARK = 4
# Python strips more than `\s` of a pattern.
_READS_AS_JSON = r"^[\s\u001c-\u001f\u0085]*([-+.0-9\[{(\"']|true|false|null|True|False|None)"
_WHOLE: Final = NumberSpec(integer=True)

Readings = Callable[[str], frozenset[str]]
"""The types that a reader of raw text knows for the value of a name. What is none of them is read as a string."""
_TEXT: Final = frozenset({"string"})
_ANY: Final = _TEXT | {"number", "boolean", "null", "object", "array"}


class ArgumentPart(Enum):
    """A part of an argument: its name, its value, or the name of the value's type."""

    KEY = "key"
    VALUE = "value"
    IS_STRING = "is_string"
    JSON_TYPE = "json_type"


class ArgumentNotation(msgspec.Struct, frozen=True, kw_only=True):
    """How arguments are written. argument: one of them. separator: between two. stop: text that ends a raw string;
    None where strings are JSON. quote: stands around raw strings, also of those within arrays and objects, whose keys
    are bare; None where both are JSON. names: a pattern of all names that may be written; "" for any. section: what
    opens and closes another form of raw strings. python_words: a value may also be True, False or None. single_quotes:
    a value that is a string may also stand between these."""

    argument: tuple[ast.Expr | ArgumentPart, ...]
    separator: ast.Expr = ast.EMPTY
    stop: str | None = None
    quote: ast.Expr | None = None
    names: str = ""
    section: tuple[str, str] | None = None
    python_words: bool = False
    single_quotes: bool = False


def translate_arguments(
    schema: Any,
    notation: ArgumentNotation,
    *,
    whitespace: Whitespace = Whitespace.CONSISTENT,
    order: PropertyOrder = PropertyOrder.SCHEMA,
    readings: Readings | None = None,
) -> Translated:
    """The arguments that satisfy `schema`, an object's. whitespace: of JSON within them. readings: None where a reader
    knows which names have strings only. Raises as `enforce`, alone."""
    with budget(), ir.placed(ir.TRUE):
        document = Document(schema)
        if notation.quote is not None and notation.stop is not None:
            emitter: Emitter = _BareKeyEmitter(Expander(document), order, notation.quote, notation.stop)
        else:
            emitter = Emitter(Expander(document), whitespace=whitespace, order=order)
        writer = _Writer(emitter, notation, readings)
        sets = emitter.expander.expand(emitter.expander.terms.positive(document.root))
        root = ast.choice([writer.object(spec) for spec in sets.object])
        grammar = prune(emitter.grammar_of(root), emitter.rules.complete)
        if emitter.needs_comparison is not None:
            raise emitter.needs_comparison
    if grammar is None:
        reason = "no JSON object satisfies the schema"
        if writer.unwritten:
            reason = f"this model's notation cannot hold the name {writer.unwritten[0]!r}"
        raise UnsupportedSchema("", "type", reason)
    most = {name: most for name, most in writer.most.items() if most is not None}
    return Translated(grammar, None, most)


class _Closing(NamedTuple):
    """How a raw string without quotes ends, and what follows its stop, to the end of the argument."""

    stop: RawStop
    follows: tuple[ast.Expr | ArgumentPart, ...]


class _Writer:
    def __init__(self, emitter: Emitter, notation: ArgumentNotation, readings: Readings | None) -> None:
        self._emit = emitter
        self._names = strings.Pattern(notation.names)
        kinds = (ArgumentPart.JSON_TYPE, ArgumentPart.IS_STRING)
        raw = notation.stop is not None and notation.quote is None
        self._is_read = raw and not any(kind in notation.argument for kind in kinds)
        self._readings = readings
        self._closing = self._closing_of(notation)
        self._notation = msgspec.structs.replace(notation, argument=self._shared(notation.argument))
        self._plain = PlainText()
        self.most: dict[str, int | None] = {}
        self.unwritten: list[str] = []

    def _closing_of(self, notation: ArgumentNotation) -> _Closing | None:
        """None where raw strings have a quote, or none are written."""
        if notation.stop is None or notation.quote is not None:
            return None
        at = notation.argument.index(ArgumentPart.VALUE) + 1
        text, special = "", ""
        while not special and notation.stop not in text:
            part = notation.argument[at]
            at += 1
            if isinstance(part, ast.Special):
                special = part.text
            elif isinstance(part, ast.Literal):
                text += part.text
            else:
                raise ValueError("the stop of raw strings is a text")
        if special:
            stop, rest = text.lstrip() + special, ""
        else:
            stop, rest = notation.stop, text.partition(notation.stop)[2]
        gap = text.index(stop.removesuffix(special))
        follows = (*([ast.Literal(rest)] if rest else []), *notation.argument[at:])
        return _Closing(RawStop(stop, special, gap, notation.section), self._shared(follows))

    def _shared(self, parts: tuple[ast.Expr | ArgumentPart, ...]) -> tuple[ast.Expr | ArgumentPart, ...]:
        """The marks of the notation as rules: each is written once, and not for every argument."""
        return tuple(
            self._emit.rules.define("mark", part)
            if isinstance(part, ast.Literal) and len(part.text) >= _LONG_MARK
            else part
            for part in parts
        )

    def object(self, spec: ir.ObjectSpec) -> ast.Expr:
        """All arguments of one spec, in the order of its properties."""
        expander = self._emit.expander
        required = set(spec.required)
        names = dict.fromkeys([*spec.props, *spec.required])
        fields: list[Field] = []
        for name in names:
            conj = expander.algebra.lookup(spec, name)
            with ir.placed(conj):
                if name in required or not expander.is_nothing(conj):
                    sets = self._uncounted(name, self._as_read(expander.expand(conj), name))
                    argument = self._argument(self._key(name), name, sets)
                    if argument != ast.NEVER or name in required:
                        fields.append(Field(argument, name in required))
        extra: ast.Expr = ast.NEVER
        if not names and not spec.rules:
            extra = self._argument(_NAME, "any", self._as_read(expander.expand(ir.TRUE), None))
        shape = Shape(fields, extra, [], 0, spec.low, spec.high)
        counted = spec.low > len(required) or (spec.high is not None and spec.high < len(fields))
        if spec.exists or (counted and not (self._emit.any_order and fields)):
            raise UnsupportedSchema(
                "", "minProperties", "arguments cannot be counted in this model's notation"
            )
        rules, comma = self._emit.rules, self._notation.separator
        if self._emit.any_order:
            members = members_in_any_order(
                rules, shape, "arguments", comma=comma, others_last=self._emit.others_last
            )
        else:
            members = plain_members(rules, shape, "arguments", comma=comma)
        return ast.optional(members) if shape.may_be_empty() else members

    def _key(self, name: str) -> ast.Expr:
        """NEVER for a name that a reader would end before its end."""
        if self._notation.names and not strings.contains(self._names, name):
            self.unwritten.append(name)
            return ast.NEVER
        return self._plain.literal(name) if self._notation.quote is None else self._emit.key(name)

    def _is_mark(self, name: str) -> bool:
        """Whether an executor finds the value of this key."""
        return self._notation.quote is None or _is_bare(name)

    def _as_read(self, sets: ir.TypeSets, name: str | None) -> ir.TypeSets:
        """The values of an argument whose text is read as that value. name: None for one that is not listed."""
        if not self._is_read:
            return sets
        if self._readings is None or name is None:
            known = _ANY if self._has_others(sets) else _TEXT
        else:
            known = self._readings(name)
        text = sets.string
        if known != _TEXT:
            text = strings.intersect(text, strings.complement(strings.Pattern(_READS_AS_JSON)))
        whole = (intersect(spec, _WHOLE) for spec in sets.number) if "integer" in known else ()
        return ir.TypeSets(
            null=sets.null and "null" in known,
            boolean=sets.boolean if "boolean" in known else ir.NO_BOOLEAN,
            number=sets.number if "number" in known else tuple(spec for spec in whole if spec is not None),
            string=text if "string" in known else NO_STRING,
            array=sets.array if "array" in known else (),
            object=sets.object if "object" in known else (),
        )

    def _uncounted(self, name: str, sets: ir.TypeSets) -> ir.TypeSets:
        """The values of an argument, without the bound of a text that is too long to be counted here."""
        text, most = sets.string, None
        is_raw = self._notation.stop is not None and not self._has_others(sets) and self._is_mark(name)
        counted = RawStop("").most if self._closing is None else self._closing.stop.most
        if (
            is_raw
            and isinstance(text, strings.Length)
            and text.low <= MOST_NEEDED_RAW
            and counted < (text.high or 0)
        ):
            most = text.high
            sets = msgspec.structs.replace(sets, string=strings.Length(text.low, None))
        if self.most.setdefault(name, most) != most:
            raise UnsupportedSchema(
                "", "maxLength", "a long text has one bound only in this model's notation"
            )
        return sets

    def _argument(self, key: ast.Expr, hint: str, sets: ir.TypeSets) -> ast.Expr:
        """One argument, in each spelling of its type."""
        slots, closing = self._notation.argument, self._closing
        until = None if closing is None or self._has_others(sets) else text_until(sets.string, closing.stop)
        if closing is not None and until is not None:
            parts = (*slots[: slots.index(ArgumentPart.VALUE)], until, *closing.follows)
            return self._filled(key, "string", ast.EMPTY, parts)
        if ArgumentPart.JSON_TYPE in slots or ArgumentPart.IS_STRING in slots:
            kinds = self._by_type(sets, hint)
        else:
            other = self._other(msgspec.structs.replace(sets, string=NO_STRING), hint)
            whole = ast.choice([self._string(sets.string, hint), other])
            kinds = [("string", whole)]
        return ast.choice([self._filled(key, kind, value) for kind, value in kinds if value != ast.NEVER])

    def _filled(
        self,
        key: ast.Expr,
        kind: str,
        value: ast.Expr,
        parts: tuple[ast.Expr | ArgumentPart, ...] | None = None,
    ) -> ast.Expr:
        words: dict[ArgumentPart, ast.Expr] = {
            ArgumentPart.KEY: key,
            ArgumentPart.VALUE: value,
            ArgumentPart.IS_STRING: ast.Literal("true" if kind == "string" else "false"),
            ArgumentPart.JSON_TYPE: ast.Literal(kind),
        }
        slots = self._notation.argument if parts is None else parts
        return ast.sequence([words[p] if isinstance(p, ArgumentPart) else p for p in slots])

    def _by_type(self, sets: ir.TypeSets, hint: str) -> list[tuple[str, ast.Expr]]:
        kinds = ("number", "boolean", "null", "object", "array")
        parts = [
            (kind, msgspec.structs.replace(ir.NO_VALUE, **{kind: getattr(sets, kind)})) for kind in kinds
        ]
        others = [(kind, self._other(part, hint)) for kind, part in parts if not part.is_nothing()]
        return [("string", self._string(sets.string, hint)), *others]

    def _has_others(self, sets: ir.TypeSets) -> bool:
        return not msgspec.structs.replace(sets, string=NO_STRING).is_nothing()

    def _string(self, allowed: StringSet, hint: str) -> ast.Expr:
        stop = self._notation.stop
        if strings.is_empty(allowed):
            return ast.NEVER
        if stop is None or self._notation.quote is not None:
            whole = self._emit.string(allowed, hint)
            if not self._notation.single_quotes:
                return whole
            quoted = string_expr(allowed, SingleQuoted(), self._emit.rules, hint)
            return ast.choice([whole, ast.sequence([ast.Literal("'"), quoted])])
        if self._notation.section is not None:
            opening = strings.Pattern("^" + re.escape(self._notation.section[0]))
            allowed = strings.intersect(allowed, strings.complement(opening))
        return raw_text(allowed, stop, self._emit.rules, hint)

    def _other(self, sets: ir.TypeSets, hint: str) -> ast.Expr:
        """The value, if it is not a string."""
        if sets.is_nothing():
            return ast.NEVER
        value = self._emit.alternatives(sets, hint)
        whole = self._emit.laid_out(value) if sets.array or sets.object else value
        if not self._notation.python_words:
            return whole
        words = {
            "False": sets.boolean & ir.FALSE_ONLY,
            "True": sets.boolean & ir.TRUE_ONLY,
            "None": sets.null,
        }
        return ast.choice([whole, *(ast.Literal(word) for word, allowed in words.items() if allowed)])


_BARE: Final = strings.Pattern(r"""^[^\s\u0000-\u0020\u007f-\u00a0,:\[\](){}'"<]+$""")


def _is_bare(name: str) -> bool:
    """Whether a name is read as one without quotes around it."""
    return strings.contains(_BARE, name)


class _BareKeyEmitter(Emitter):
    """Writes objects on one line. A name that does not read as one word stands between quotes."""

    def __init__(self, expander: Expander, order: PropertyOrder, quote: ast.Expr, stop: str) -> None:
        """quote: around strings. stop: its text, which no string contains."""
        super().__init__(expander, whitespace=Whitespace.COMPACT, order=order)
        self._quote = quote
        self._stop = stop

    def string(self, allowed: StringSet, hint: str) -> ast.Expr:
        is_any = isinstance(allowed, strings.AnyString)
        return self.shared("string") if is_any else self._quoted(allowed, hint)

    def name(self, allowed: StringSet, hint: str) -> ast.Expr:
        bare = strings.intersect(allowed, _BARE)
        return ast.choice(
            [raw_text(bare, self._stop, self.rules, f"{hint}-bare"), self.string(allowed, hint)]
        )

    def name_outside(self, allowed: StringSet, words: tuple[str, ...], hint: str) -> ast.Expr:
        return self.name(strings.intersect(allowed, strings.complement(strings.OneOfStrings(words))), hint)

    def key(self, name: str) -> ast.Expr:
        return ast.Literal(name) if _is_bare(name) else self._quoted(strings.OneOfStrings((name,)), name)

    def _shared_body(self, name: str) -> ast.Expr:
        return self._quoted(ANY_STRING, name) if name == "string" else super()._shared_body(name)

    def _quoted(self, allowed: StringSet, hint: str) -> ast.Expr:
        special = self._stop if isinstance(self._quote, ast.Special) else ""
        until = text_until(allowed, RawStop(self._stop, special))
        if until is not None:
            return ast.sequence([self._quote, until])
        return ast.sequence([self._quote, raw_text(allowed, self._stop, self.rules, hint), self._quote])
