"""The grammar of tool calls in a model's own format, with arguments that follow each tool's schema.

Pure and slow (milliseconds a tool): runs in the compiling process; the server calls GrammarCache.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from jan_serve.chat.call_layout import (
    CALL_ID_PATTERN,
    ArgumentSyntax,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    Parts,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.constraint import CompiledGrammar, Constraint
from jan_serve.core.guide import CallGrammars
from jan_serve.core.messages import Tool
from jan_serve.errors import GrammarTooComplex, InvalidSchema, UnsupportedPattern, UnsupportedSchema
from jan_serve.generation.constraint.constraint_grammar import print_grammar, translate_constraint
from jan_serve.grammar import (
    json_schema_to_grammar,
    regex_to_grammar,
)
from jan_serve.grammar.ast import EMPTY, Expr, Grammar, Literal, RuleRef, Special, choice, repeat, sequence
from jan_serve.grammar.builder import RuleBuilder
from jan_serve.grammar.compose import Composer, embed
from jan_serve.grammar.json_schema.arguments import ArgumentNotation, ArgumentSlot, translate_arguments

_REFUSALS: Final = (UnsupportedSchema, InvalidSchema, UnsupportedPattern, GrammarTooComplex)
_KEY: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_SCALAR: Final = r"true|false|null|-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?"
MAX_BOUND: Final = 4_096
_ARGUMENT_SLOTS: Final = {
    Slot.KEY: ArgumentSlot.KEY,
    Slot.VALUE: ArgumentSlot.VALUE,
    Slot.IS_STRING: ArgumentSlot.IS_STRING,
    Slot.JSON_TYPE: ArgumentSlot.JSON_TYPE,
}


def call_grammars(
    chat_format: ChatFormat, tools: Sequence[Tool], *, parallel: bool, constraint: Constraint | None = None
) -> CallGrammars:
    """The grammars of calls of any of `tools`. parallel: several calls are allowed.

    constraint: for an answer without a call. Raises UnsupportedSchema if a tool with `strict` cannot be enforced;
    GrammarTooComplex.
    """
    arguments = _ToolArguments(chat_format, tools)
    writer = _CallWriter(chat_format, arguments, parallel)
    wholes = [writer.whole()]
    if constraint is not None:
        text = _texts(chat_format.text_opens, chat_format.special_tokens)
        wholes.append(sequence([*text, writer.composer.embed(translate_constraint(constraint), "answer")]))
    whole = print_grammar(writer.composer.grammar(choice(wholes)), tokens=not arguments.have_free_text)
    triggered: list[CompiledGrammar] = []
    for trigger in chat_format.calls.triggers:
        part = _CallWriter(chat_format, arguments, parallel)
        grammar = part.composer.grammar(part.after(trigger))
        triggered.append(print_grammar(grammar, tokens=not arguments.have_free_text))
    return CallGrammars(whole, tuple(triggered), tuple(arguments.warnings))


class _ToolArguments:
    """The grammar of each tool's arguments, translated once. have_free_text: the syntax has unquoted strings."""

    def __init__(self, chat_format: ChatFormat, tools: Sequence[Tool]) -> None:
        self._syntax = chat_format.calls.arguments
        self._special_tokens = chat_format.special_tokens
        self.have_free_text = not isinstance(self._syntax, JsonArguments | PythonArguments)
        self.warnings: list[str] = []
        self.grammars = [(tool.name, self._grammar(tool)) for tool in tools]

    def _grammar(self, tool: Tool) -> Grammar:
        schema = _object_schema(tool.parameters)
        try:
            return self._translate(tool, schema)
        except _REFUSALS as error:
            if tool.strict:
                raise
            refused = error
        if (shorter := without_large_bounds(schema)) != schema:
            try:
                grammar = self._translate(tool, shorter)
            except _REFUSALS as error:
                refused = error
            else:
                self.warnings.append(
                    f"tool {tool.name}: lengths above {MAX_BOUND} are not enforced in the notation of this model"
                )
                return grammar
        self.warnings.append(
            f"tool {tool.name}: its arguments are held to any JSON object, not to its schema: {refused}"
        )
        return self._translate(tool, {"type": "object"})

    def _translate(self, tool: Tool, schema: Any) -> Grammar:
        if isinstance(self._syntax, JsonArguments):
            return json_schema_to_grammar(schema)
        translated = translate_arguments(schema, _notation(self._syntax, self._special_tokens))
        if not translated.exact:
            self.warnings.append(
                f"tool {tool.name}: arrays and objects among its arguments are held to the notation of this model,"
                " not to their schemas"
            )
        if isinstance(self._syntax, GemmaArguments):
            return _braced(translated.grammar)
        return translated.grammar


def without_large_bounds(schema: Any) -> Any:
    """The schema without each `maxLength` above MAX_BOUND, which no notation of free text can be held to.

    Data in it (`const`, `enum`) stays.
    """
    if isinstance(schema, list):
        return [without_large_bounds(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in ("const", "enum") else without_large_bounds(value)
        for key, value in cast(dict[str, Any], schema).items()
        if not (key == "maxLength" and isinstance(value, int | float) and value > MAX_BOUND)
    }


class _CallWriter:
    """Writes the calls of one grammar."""

    def __init__(self, chat_format: ChatFormat, arguments: _ToolArguments, parallel: bool) -> None:
        self._chat_format = chat_format
        self._layout = chat_format.calls
        self._parallel = parallel and chat_format.calls.parallel
        self.composer = Composer()
        self._arguments = {name: self.composer.embed(grammar, name) for name, grammar in arguments.grammars}
        self._names = [name for name, _ in arguments.grammars]

    def whole(self) -> Expr:
        """One call or more, with all that stands around them."""
        return sequence([*self._text(self._layout.opening), self._calls(), *self._text(self._layout.closing)])

    def after(self, trigger: str) -> Expr:
        """The rest of the calls after a trigger. Without a closing text, each call has its own trigger."""
        first = self._any_tool(self._layout.after(trigger))
        if not self._layout.closing:
            return first
        return sequence([first, self._more(), *self._text(self._layout.closing)])

    def _calls(self) -> Expr:
        return sequence([self._call(), self._more()])

    def _more(self) -> Expr:
        if not self._parallel:
            return EMPTY
        return repeat(sequence([*self._text(self._layout.separator), self._call()]), 0, None)

    def _call(self) -> Expr:
        return self.composer.rules.define("call", self._any_tool(self._layout.call))

    def _any_tool(self, parts: Parts) -> Expr:
        return choice([sequence(self._filled(parts, name)) for name in self._names])

    def _filled(self, parts: Parts, tool: str) -> Iterable[Expr]:
        for part in parts:
            match part:
                case str():
                    yield from self._text(part)
                case Slot.NAME:
                    yield Literal(tool)
                case Slot.ARGUMENTS:
                    yield self._arguments[tool]
                case Slot.INDEX:
                    yield self.composer.embed(regex_to_grammar("0|[1-9][0-9]{0,3}"), "index")
                case Slot.CALL_ID:
                    yield self.composer.embed(regex_to_grammar(CALL_ID_PATTERN), "id")
                case _:
                    raise ValueError(f"{part} stands outside of arguments")

    def _text(self, text: str) -> list[Expr]:
        pieces = _texts(text, self._chat_format.special_tokens)
        if not self._layout.optional_breaks:
            return pieces
        return [loose for piece in pieces for loose in _with_optional_breaks(piece)]


def _braced(grammar: Grammar) -> Grammar:
    composer = Composer()
    return composer.grammar(sequence([Literal("{"), composer.embed(grammar, "arguments"), Literal("}")]))


def _object_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments are an object even if the schema has no type."""
    return parameters if "type" in parameters else {**parameters, "type": "object"}


def _with_optional_breaks(piece: Expr) -> list[Expr]:
    if not isinstance(piece, Literal):
        return [piece]
    parts = re.split(r"(\n+)", piece.text)
    return [repeat(Literal(part), 0, 1) if part.startswith("\n") else Literal(part) for part in parts if part]


def _texts(text: str, specials: Sequence[str]) -> list[Expr]:
    """A text of the format, split at its control tokens."""
    if not text:
        return []
    if not specials:
        return [Literal(text)]
    marks = sorted(specials, key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
    return [Special(piece) if piece in specials else Literal(piece) for piece in pieces if piece]


def _notation(syntax: ArgumentSyntax, specials: Sequence[str]) -> ArgumentNotation:
    match syntax:
        case TaggedArguments():
            parts = tuple(
                piece
                for part in syntax.argument
                for piece in (_texts(part, specials) if isinstance(part, str) else [_ARGUMENT_SLOTS[part]])
            )
            next_part = syntax.argument[syntax.argument.index(Slot.VALUE) + 1]
            return ArgumentNotation(
                argument=parts,
                separator=sequence(_texts(syntax.separator, specials)),
                stop=str(next_part).strip(),
            )
        case PythonArguments():
            return ArgumentNotation(
                argument=(ArgumentSlot.KEY, Literal("="), ArgumentSlot.VALUE), separator=Literal(", ")
            )
        case GemmaArguments(quote=quote):
            return ArgumentNotation(
                argument=(ArgumentSlot.KEY, Literal(":"), ArgumentSlot.VALUE),
                separator=Literal(","),
                stop=quote,
                quote=sequence(_texts(quote, specials)),
                containers=_bare_key_containers,
            )
        case NestedTagArguments(prefix=prefix):
            # Objects and arrays are read as JSON too, which a grammar can hold to their schemas.
            mark = _texts(prefix, specials)
            key, value = ArgumentSlot.KEY, ArgumentSlot.VALUE
            opening, closing = (
                (*mark, Literal("<"), key, Literal(">")),
                (*mark, Literal("</"), key, Literal(">")),
            )
            return ArgumentNotation(argument=(*opening, value, *closing), stop=prefix)
        case JsonArguments():
            raise ValueError("JSON arguments have no notation of their own")


def _bare_key_containers(rules: RuleBuilder, string: Expr) -> Expr:
    """Any array or object with bare keys."""
    nested = RuleRef(rules.reserve("nested"))
    value = choice([string, _embedded(rules, _SCALAR, "scalar"), nested])
    pair = sequence([_embedded(rules, _KEY, "key"), Literal(":"), value])
    rules.fill(
        nested.name,
        choice([_enclosed("{", pair, "}"), _enclosed("[", value, "]")]),
    )
    return nested


def _enclosed(opening: str, item: Expr, closing: str) -> Expr:
    """Items between brackets, with commas."""
    more = repeat(sequence([Literal(","), item]), 0, None)
    return sequence([Literal(opening), repeat(sequence([item, more]), 0, 1), Literal(closing)])


def _embedded(rules: RuleBuilder, pattern: str, hint: str) -> Expr:
    return embed(rules, regex_to_grammar(pattern), hint)
