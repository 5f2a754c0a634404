"""The arguments of one tool in a model's own format, which follow the tool's schema.

Pure and slow (milliseconds a tool): runs in the compiling process; the server calls GrammarCache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from jan_serve.chat.call_layout import (
    ArgumentSyntax,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.schema_types import property_schema, types_of
from jan_serve.constraint.ast import Expr, Literal, Mode, OneLayout, Special, Translated, sequence
from jan_serve.constraint.enforce import Enforced, enforce_translation
from jan_serve.constraint.explain import loosened
from jan_serve.constraint.json_schema.arguments import ArgumentNotation, ArgumentPart, translate_arguments
from jan_serve.constraint.json_schema.translate import translate
from jan_serve.constraint.layout import with_optional_spaces
from jan_serve.constraint.limits import MAX_STEPS, spent
from jan_serve.constraint.rules import RuleBuilder, has_node
from jan_serve.core.constraint import PropertyOrder, ToolGrammar, Whitespace, any_object
from jan_serve.core.uniqueness import Uniqueness
from jan_serve.errors import (
    GrammarTooComplex,
    InvalidRequest,
    InvalidSchema,
    UnsupportedPattern,
    UnsupportedSchema,
)


def spelled_texts(text: str, specials: Sequence[str]) -> list[Expr]:
    """A text of the format, split at its control tokens."""
    marks = sorted(specials, key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text) if marks else [text]
    return [Special(piece) if piece in specials else Literal(piece) for piece in pieces if piece]


_PLACED: Final = (UnsupportedSchema, InvalidSchema, GrammarTooComplex)
_REFUSALS: Final = (*_PLACED, UnsupportedPattern)
BOUNDS: Final = (4_096, 256)
"""Bounds of lengths in arguments, if not JSON: given up from the largest on where an automaton has to count and to look
for an end at once, in texts that a pattern holds too, and that may be another type."""
COUNTED_NAMES: Final = (
    "minProperties above 1 is not enforced in the notation of this model, where names may repeat"
)
_MOST_GIVEN_UP: Final = 8
_MOST_STEPS: Final = 3 * MAX_STEPS
"""Steps to find what to give up: the process has a limit of CPU time."""
ANY_ARGUMENTS: Final[dict[str, Any]] = {"type": "object"}
_ARGUMENT_SLOTS: Final = {
    Slot.KEY: ArgumentPart.KEY,
    Slot.VALUE: ArgumentPart.VALUE,
    Slot.IS_STRING: ArgumentPart.IS_STRING,
    Slot.JSON_TYPE: ArgumentPart.JSON_TYPE,
}


def tool_grammar(
    chat_format: ChatFormat,
    parameters: dict[str, Any],
    *,
    strict: bool = False,
    whitespace: Whitespace = Whitespace.CONSISTENT,
    order: PropertyOrder = PropertyOrder.LISTED,
) -> ToolGrammar:
    """The arguments of one tool. A schema that cannot be enforced becomes less, with a warning.

    whitespace: of JSON in the arguments, on one line where it is `consistent`. strict: raise UnsupportedSchema,
    InvalidSchema, UnsupportedPattern or GrammarTooComplex instead.
    """
    made, warnings = tool_arguments(
        chat_format, parameters, strict=strict, whitespace=whitespace, order=order
    )
    return ToolGrammar(made.piece(), warnings, made.most, made.compiled.uniqueness or Uniqueness())


def tool_arguments(
    chat_format: ChatFormat,
    parameters: dict[str, Any],
    *,
    strict: bool = False,
    whitespace: Whitespace = Whitespace.CONSISTENT,
    order: PropertyOrder = PropertyOrder.LISTED,
) -> tuple[Enforced, tuple[str, ...]]:
    """The constraint of `tool_grammar`, not yet a part of a larger grammar."""
    is_json = isinstance(chat_format.calls.arguments, JsonArguments)

    def make(schema: Any) -> Enforced:
        return enforce_translation(
            lambda mode: _on_one_line(chat_format, schema, whitespace, order, mode),
            mode=Mode.ENFORCED if is_json else Mode.ALONE,
            terminals=not has_free_text(chat_format),
        )

    schema = _object_schema(parameters)
    try:
        return make(schema), ()
    except _REFUSALS as error:
        if isinstance(error, GrammarTooComplex):
            error.place("")
        if strict:
            raise
        refused = error
    given_up: tuple[str, ...] = ()
    steps = spent()
    while len(given_up) < _MOST_GIVEN_UP:
        for fewer, warning in _less(schema, refused, () if is_json else BOUNDS):
            if steps > _MOST_STEPS:
                return make(ANY_ARGUMENTS), (any_object(refused.message),)
            try:
                return make(fewer), tuple(dict.fromkeys((*given_up, warning)))
            except _REFUSALS as error:
                steps += max(spent(), 1)
                if _place(error) != _place(refused):
                    schema, refused = fewer, error
                    given_up = tuple(dict.fromkeys((*given_up, warning)))
                    break
        else:
            break
    return make(ANY_ARGUMENTS), (any_object(refused.message),)


def _less(
    schema: dict[str, Any], refused: InvalidRequest, bounds: Sequence[int]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Schemas that take more than a refused one, each with the warning that says so."""
    for bound in bounds if isinstance(refused, GrammarTooComplex) else ():
        if (shorter := without_larger(schema, ("minLength", "maxLength"), bound)) != schema:
            yield shorter, long_bounds(bound)
    counted = isinstance(refused, UnsupportedSchema) and refused.keyword == "minProperties"
    if counted and (fewer := without_larger(schema, ("minProperties",), 1)) != schema:
        yield fewer, COUNTED_NAMES
    for found, change in loosened(schema, refused):
        reason = refused.reason if isinstance(refused, _PLACED) else refused.message
        yield _object_schema(found), change.warning(reason)


def _place(refused: InvalidRequest) -> tuple[str | None, ...]:
    """Where a refusal is, and of what: another one is a step on the way."""
    pointer = refused.pointer if isinstance(refused, _PLACED) else None
    return type(refused).__name__, pointer, getattr(refused, "keyword", None)


def long_bounds(bound: int) -> str:
    """The warning of a tool whose lengths above this are not enforced."""
    return f"lengths above {bound} are not enforced in the notation of this model"


def has_free_text(chat_format: ChatFormat) -> bool:
    """Whether the format's arguments have unquoted strings."""
    return not isinstance(chat_format.calls.arguments, JsonArguments | PythonArguments)


def answer_has_terminals(chat_format: ChatFormat) -> bool:
    """Whether an answer beside calls may be written with terminals of several characters.

    Not where a call may have unquoted strings, or no mark at its start: `{"name` would be read as the answer's key.
    """
    layout = chat_format.calls
    first = layout.opening + (layout.call[0] if isinstance(layout.call[0], str) else "")
    return not has_free_text(chat_format) and not first.startswith("{")


def _on_one_line(
    chat_format: ChatFormat, schema: Any, whitespace: Whitespace, order: PropertyOrder, mode: Mode
) -> Translated:
    made = _translated(chat_format, schema, whitespace, order, mode)
    if not has_node(made.grammar, OneLayout):
        return made
    # The parts of many tools share one grammar, whose size is limited; indented arguments are rare.
    return msgspec.structs.replace(made, grammar=with_optional_spaces(made.grammar))


def _translated(
    chat_format: ChatFormat, schema: Any, whitespace: Whitespace, order: PropertyOrder, mode: Mode
) -> Translated:
    syntax = chat_format.calls.arguments
    if isinstance(syntax, JsonArguments):
        made = translate(schema, whitespace=whitespace, mode=mode, order=order)
        if schema["type"] != "object":
            raise UnsupportedSchema("", "type", "no JSON object satisfies the schema")
        return made
    notation = _notation(syntax, chat_format.special_tokens)

    def readings(name: str) -> frozenset[str]:
        return types_of(property_schema(schema, schema, name), schema)

    made = translate_arguments(schema, notation, whitespace=whitespace, order=order, readings=readings)
    if not isinstance(syntax, GemmaArguments):
        return made
    rules = RuleBuilder()
    braced = sequence([Literal("{"), rules.embed(made.grammar, "arguments"), Literal("}")])
    return msgspec.structs.replace(made, grammar=rules.grammar(braced))


def without_larger(schema: Any, keywords: tuple[str, ...], most: int) -> Any:
    """The schema without these keywords where their number is larger. Data in it (`const`, `enum`) stays."""
    if isinstance(schema, list):
        return [without_larger(item, keywords, most) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in ("const", "enum") else without_larger(value, keywords, most)
        for key, value in cast(dict[str, Any], schema).items()
        if not (key in keywords and isinstance(value, int | float) and value > most)
    }


_MEMBERS: Final = (
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "minProperties",
    "required",
    "dependentSchemas",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
)
"""Keywords with which an object that lists no properties may have some."""


def _object_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments are an object, also if the schema has no type or allows another one.

    An empty list of properties means no arguments: JSON Schema allows any there, and no client means that.
    """
    says_more = any(parameters.get(keyword) not in (None, [], 0) for keyword in _MEMBERS)
    if parameters.get("properties") == {} and not says_more:
        parameters = {**parameters, "additionalProperties": False}
    types = parameters.get("type", "object")
    if "object" in types if isinstance(types, list) else types in ("object", "OBJECT"):
        parameters = {**parameters, "type": "object"}
        parameters.pop("nullable", None)
    return parameters


def _notation(syntax: ArgumentSyntax, specials: Sequence[str]) -> ArgumentNotation:
    match syntax:
        case TaggedArguments():
            parts: list[Expr | ArgumentPart] = []
            for part in syntax.argument:
                parts += spelled_texts(part, specials) if isinstance(part, str) else [_ARGUMENT_SLOTS[part]]
            after_key = str(syntax.argument[syntax.argument.index(Slot.KEY) + 1])
            next_part = syntax.argument[syntax.argument.index(Slot.VALUE) + 1]
            return ArgumentNotation(
                argument=tuple(parts),
                separator=sequence(spelled_texts(syntax.separator, specials)),
                stop=str(next_part).strip(),
                names=f"^[^{after_key[0]}]*$",
                section=syntax.section,
                python_words=syntax.python_words,
            )
        case PythonArguments():
            return ArgumentNotation(
                argument=(ArgumentPart.KEY, Literal("="), ArgumentPart.VALUE),
                separator=Literal(", "),
                names=r"""^[^\s\u0000-\u0020\u007f-\u00a0=,:()\[\]{}'"<]+$""",
                python_words=True,
                single_quotes=True,
            )
        case GemmaArguments(quote=quote):
            return ArgumentNotation(
                argument=(ArgumentPart.KEY, Literal(":"), ArgumentPart.VALUE),
                separator=Literal(","),
                stop=quote,
                quote=sequence(spelled_texts(quote, specials)),
                python_words=True,
            )
        case NestedTagArguments(prefix=prefix):
            # Objects and arrays are read as JSON too, which a grammar can hold to their schemas.
            mark, key = spelled_texts(prefix, specials), ArgumentPart.KEY
            opening, closing = ((*mark, Literal(text), key, Literal(">")) for text in ("<", "</"))
            argument = (*opening, ArgumentPart.VALUE, *closing)
            return ArgumentNotation(argument=argument, stop=prefix, names="^([^/>][^>]*)?$")
        case JsonArguments():
            raise ValueError("JSON arguments have no notation of their own")
