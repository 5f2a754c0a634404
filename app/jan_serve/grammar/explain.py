"""Says what a JSON Schema costs as a grammar, and which keyword to change where it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from jan_serve.core.constraint import Whitespace
from jan_serve.errors import GrammarTooComplex, InvalidRequest, UnsupportedSchema
from jan_serve.grammar.enforced import enforced_schema
from jan_serve.grammar.json_schema.document import escape_token
from jan_serve.grammar.json_schema.keywords import (
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    UNEVALUATED,
)
from jan_serve.grammar.limits import MAX_LARK_BYTES, MAX_RULES, MAX_STEPS, spent

# What may be given up, the least first. Keywords that list values or members are what a schema is about.
_GIVEN_UP: Final = (
    *(
        "uniqueItems",
        "maxLength",
        "minLength",
        "pattern",
        "format",
        "contentEncoding",
        "multipleOf",
        "maxItems",
    ),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minItems", "contains", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"),
    *(
        "unevaluatedItems",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "not",
        "if",
        "oneOf",
        "anyOf",
    ),
    *("patternProperties", "allOf", "$ref", "items", "additionalProperties"),
)
_TURNING: Final = frozenset({"not", "if", "oneOf", "contains", "maxContains"})
"""Below these, what takes more may leave less."""
_DIVIDING: Final = frozenset({"patternProperties", "items"})
"""Without these, what they cover falls to the keywords for the rest."""
MOST_STEPS: Final = 20 * MAX_STEPS
_MOST_TRIES: Final = 400
_STEPS_IN_MS: Final = 500
_SHOWN: Final = 5
_CLOSING: Final = ("additionalProperties", "unevaluatedProperties")


class Cost(NamedTuple):
    """steps: of the translation, of MAX_STEPS. remembered: places whose items the executor remembers."""

    steps: int
    rules: int
    lark_bytes: int
    remembered: int

    def lines(self) -> list[str]:
        """For people."""
        found = [
            f"translation: {self.steps:,} of {MAX_STEPS:,} steps, about {max(1, self.steps // _STEPS_IN_MS)} ms",
            f"rules: {self.rules:,} of {MAX_RULES:,}",
            f"Lark: {self.lark_bytes:,} of {MAX_LARK_BYTES:,} bytes",
        ]
        if self.remembered:
            places = "1 place" if self.remembered == 1 else f"{self.remembered} places"
            found.append(f"memory beside the grammar: unique items at {places}")
        return found


class Change(NamedTuple):
    """A single keyword without which the schema compiles. becomes: what replaces it, or None."""

    pointer: str
    keyword: str
    becomes: str | None

    def line(self) -> str:
        """For people."""
        where = f"`{self.keyword}` at {self.pointer or '/'}"
        return f"with `{self.becomes}` in place of {where}" if self.becomes else f"without {where}"


def cost_of_schema(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> Cost:
    """Raises as `enforced_schema`."""
    grammar, memory, lark = enforced_schema(schema, whitespace=whitespace)
    steps = spent()
    remembered = sum(place.unique >= 0 for place in memory.places)
    return Cost(steps, len(grammar.rules), len(lark.text), remembered)


def ordered_objects(schema: Any) -> list[str]:
    """Pointers of the objects that list several properties and write them in that order: as far as some are required,
    and all where there are no others."""
    return [
        pointer
        for pointer, node in _subschemas(schema, "")
        if isinstance(listed := node.get("properties"), dict)
        and len(cast(dict[str, Any], listed)) > 1
        and (node.get("required") or False in (node.get(keyword, True) for keyword in _CLOSING))
    ]


def smallest_change(
    schema: Any,
    refused: InvalidRequest,
    *,
    whitespace: Whitespace = Whitespace.CONSISTENT,
    most_steps: int = MOST_STEPS,
) -> Change | None:
    """One keyword to change, so that the schema compiles; None where no single one is found within a bounded search.

    The keyword that the refusal names comes first, then those that say the least about a value. most_steps: of the
    search.
    """
    changes = sorted(_changes(schema), key=lambda change: _rank(change, refused))
    steps = 0
    for change in changes[:_MOST_TRIES]:
        try:
            cost_of_schema(_changed(schema, change, ""), whitespace=whitespace)
        except InvalidRequest:
            steps += max(spent(), 1)
            if steps > most_steps:
                return None
        else:
            return change
    return None


def without_refused(schema: Any, refused: UnsupportedSchema) -> tuple[Any, Change] | None:
    """The schema without the keyword that its refusal names, so that it takes more. None where that is not certain."""
    named = [
        change
        for change in _changes(schema)
        if change.becomes is None
        and change.keyword == refused.keyword
        and f"{refused.pointer}/".startswith(f"{change.pointer}/")
    ]
    keywords = {keyword for _, node in _subschemas(schema, "") for keyword in node}
    if not named or not keywords.isdisjoint(UNEVALUATED) or refused.keyword in _DIVIDING:
        return None
    change = max(named, key=lambda change: len(change.pointer))
    way = set(change.pointer.split("/"))
    if way & {"$defs", "definitions"}:
        way |= keywords  # any place may refer to this one
    return None if way & _TURNING else (_changed(schema, change, ""), change)


def _changes(schema: Any) -> Iterator[Change]:
    for pointer, node in _subschemas(schema, ""):
        for keyword in node:
            if keyword == "oneOf" and "anyOf" not in node:
                yield Change(pointer, keyword, "anyOf")
            if keyword in _GIVEN_UP:
                yield Change(pointer, keyword, None)


def _rank(change: Change, refused: InvalidRequest) -> tuple[bool, bool, int, bool]:
    named = isinstance(refused, UnsupportedSchema) and refused.keyword == change.keyword
    # A pointer may be that of the items of an array with the keyword.
    near = isinstance(refused, UnsupportedSchema) and f"{refused.pointer}/".startswith(f"{change.pointer}/")
    return not (named and near), not named, _GIVEN_UP.index(change.keyword), change.becomes is None


def _subschemas(schema: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that is a schema, with its pointer, in the order of the document."""
    todo = [(pointer, schema)]
    while todo:
        pointer, node = todo.pop()
        if not isinstance(node, dict):
            continue
        members = cast(dict[str, Any], node)
        yield pointer, members
        below: list[tuple[str, Any]] = []
        for keyword, value in members.items():
            if keyword in SCHEMA_LIST_KEYWORDS and isinstance(value, list):
                items = enumerate(cast(list[Any], value))
                below += [(f"{pointer}/{keyword}/{number}", item) for number, item in items]
            elif keyword in SCHEMA_KEYWORDS:
                below.append((f"{pointer}/{keyword}", value))
            elif keyword in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
                named = cast(dict[str, Any], value).items()
                below += [(f"{pointer}/{keyword}{escape_token(name)}", item) for name, item in named]
        todo += reversed(below)


def _changed(node: Any, change: Change, pointer: str) -> Any:
    if isinstance(node, list):
        items = enumerate(cast(list[Any], node))
        return [_changed(item, change, f"{pointer}/{number}") for number, item in items]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], node).items():
        own = name
        if pointer == change.pointer and name == change.keyword:
            if change.becomes is None:
                continue
            own = change.becomes
        found[own] = _changed(value, change, pointer + escape_token(name))
    return found


def explain(
    schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT, most_steps: int = MOST_STEPS
) -> tuple[bool, list[str]]:
    """Whether the schema compiles, and the lines that say what it costs or what to change."""
    try:
        cost = cost_of_schema(schema, whitespace=whitespace)
    except InvalidRequest as error:
        lines = [f"refused: {error.message}"]
        if isinstance(error, GrammarTooComplex):
            lines.append(f"steps until then: {spent():,} of {MAX_STEPS:,}")
        change = smallest_change(schema, error, whitespace=whitespace, most_steps=most_steps)
        lines.append(f"it compiles {change.line()}" if change else "no change of a single keyword was found")
        return False, lines
    lines = ["compiles", *cost.lines()]
    ordered = ordered_objects(schema)
    if ordered:
        shown = ", ".join(pointer or "/" for pointer in ordered[:_SHOWN])
        more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
        lines.append(f"properties come in the order of `properties`: {shown}{more}")
    return True, lines
