"""Schemas that take more than a refused one: each gives up one keyword, near the place that the refusal names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from jan_serve.constraint.json_schema.document import escape_token, subschemas
from jan_serve.constraint.json_schema.keywords import (
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    UNEVALUATED,
)
from jan_serve.errors import GrammarTooComplex, InvalidRequest, InvalidSchema, UnsupportedSchema

# What may be given up, the least first. Keywords that list values or members are what a schema is about.
GIVEN_UP: Final = (
    *("uniqueItems", "maxLength", "minLength", "pattern", "format", "contentEncoding"),
    *("multipleOf", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minItems", "contains", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"),
    *("unevaluatedItems", "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "oneOf"),
    *("anyOf", "patternProperties", "allOf", "$ref", "items", "additionalProperties"),
)
_TURNING: Final = frozenset({"not", "if", "oneOf", "contains"})
"""Below these, what takes more may leave less."""
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})
_COVERED: Final = {
    "patternProperties": ("additionalProperties",),
    "properties": ("additionalProperties",),
    "items": ("additionalItems",),
    "prefixItems": ("items",),
}
"""Without these, what they cover falls to the keywords for the rest."""
_EVALUATING: Final = SCHEMA_KEYWORDS | SCHEMA_LIST_KEYWORDS | SCHEMA_MAP_KEYWORDS | {"$ref"}


class Change(NamedTuple):
    """A single keyword without which the schema compiles. becomes: what replaces it, or None."""

    pointer: str
    keyword: str
    becomes: str | None

    def line(self) -> str:
        where = f"`{self.keyword}` at {self.pointer or '/'}"
        return f"with `{self.becomes}` in place of {where}" if self.becomes else f"without {where}"

    def warning(self, reason: str) -> str:
        """A warning for the author of a schema that is enforced with this change."""
        what = f"enforced as `{self.becomes}`" if self.becomes else "not enforced"
        return f"`{self.keyword}` at {self.pointer or '/'} is {what}: {reason}"


def loosened(schema: Any, refused: InvalidRequest) -> Iterator[tuple[Any, Change]]:
    """Schemas that take more than this one, those first that are the likeliest to compile and give up the least.

    None where it is not certain that they take more.
    """
    nodes = dict(subschemas(schema))
    for change in _named(nodes, refused):
        turned = _turning(schema, nodes, change)
        found = change if turned is None else turned
        yield changed(schema, found), found


def all_changes(schema: Any) -> Iterator[Change]:
    """Every single keyword that may be given up, in the order of the document."""
    for pointer, node in subschemas(schema):
        for keyword in node:
            if keyword == "oneOf" and "anyOf" not in node:
                yield Change(pointer, keyword, "anyOf")
            if keyword in GIVEN_UP:
                yield Change(pointer, keyword, None)


def _named(nodes: dict[str, dict[str, Any]], refused: InvalidRequest) -> list[Change]:
    """Keywords near the place of a refusal."""
    if isinstance(refused, InvalidSchema):
        # The mistake is the value of a keyword, or within it.
        found = [
            Change(pointer, keyword, None)
            for pointer, node in nodes.items()
            for keyword in node
            if _is_within(refused.pointer, pointer + escape_token(keyword))
        ]
        return sorted(found, key=lambda change: -len(change.pointer))[:1]
    if not isinstance(refused, GrammarTooComplex | UnsupportedSchema):
        return []
    found: list[Change] = []
    if isinstance(refused, UnsupportedSchema):
        named = (
            Change(pointer, refused.keyword, None)
            for pointer, node in nodes.items()
            if refused.keyword in node and _is_within(refused.pointer, pointer)
        )
        found = sorted(named, key=lambda change: -len(change.pointer))[:1]
        if refused.keyword in GIVEN_UP and found:
            return found
    place = refused.pointer or ""
    near = [
        Change(pointer, keyword, None)
        for pointer, node in nodes.items()
        for keyword in node
        if keyword in GIVEN_UP and (_is_within(pointer, place) or _is_within(place, pointer))
    ]
    near.sort(key=lambda change: (change.pointer != place, GIVEN_UP.index(change.keyword)))
    return near + found


def _is_within(pointer: str, outer: str) -> bool:
    return f"{pointer}/".startswith(f"{outer}/")


def _turning(schema: Any, nodes: dict[str, dict[str, Any]], change: Change) -> Change | None:
    """What has to be given up first, so that the change takes more; None where it does already."""
    steps = change.pointer.split("/")[1:]
    at = ""
    for step in steps:
        if step in _TURNING and at in nodes:
            return Change(at, step, "anyOf" if step == "oneOf" and "anyOf" not in nodes[at] else None)
        at += f"/{step}"
    if _DEFINITIONS.isdisjoint(steps):
        return None
    # Any place may refer to this one.
    return next(
        (
            Change(pointer, keyword, "anyOf" if keyword == "oneOf" and "anyOf" not in node else None)
            for pointer, node in nodes.items()
            for keyword in node
            if keyword in _TURNING
        ),
        None,
    )


def changed(schema: Any, change: Change) -> Any:
    """The schema with a change, and without what would then mean something else."""
    dropped = {change.keyword: change.becomes}
    if change.becomes is None:
        dropped |= dict.fromkeys(_COVERED.get(change.keyword, ()))
    everywhere = UNEVALUATED if change.keyword in _EVALUATING else ()
    return _changed(schema, change.pointer, dropped, everywhere, "")


def _changed(
    node: Any, at: str, dropped: dict[str, str | None], everywhere: tuple[str, ...], pointer: str
) -> Any:
    if isinstance(node, list):
        items = enumerate(cast(list[Any], node))
        return [_changed(item, at, dropped, everywhere, f"{pointer}/{number}") for number, item in items]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], node).items():
        own: str | None = name
        if pointer == at and name in dropped:
            own = dropped[name]
        if own is not None and own not in everywhere:
            found[own] = _changed(value, at, dropped, everywhere, pointer + escape_token(name))
    return found
