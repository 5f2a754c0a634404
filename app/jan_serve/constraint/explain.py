"""For people: what a JSON Schema costs as a grammar, which keyword to change where it is refused, and where a text
leaves a constraint. A tool gives up keywords by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from jan_serve.constraint.enforce import Cost, Enforced, enforce
from jan_serve.constraint.json_schema.document import escape_token, subschemas
from jan_serve.constraint.json_schema.keywords import (
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    UNEVALUATED,
)
from jan_serve.constraint.limits import MAX_LARK_BYTES, MAX_RULES, MAX_STEPS, spent
from jan_serve.constraint.trial import tokenizer
from jan_serve.core.constraint import Explanation, JsonSchemaConstraint, PropertyOrder
from jan_serve.errors import GrammarTooComplex, InvalidRequest, InvalidSchema, UnsupportedSchema
from jan_serve.lark_matcher import made_matcher, too_complex
from jan_serve.text.uniqueness.check import UniquenessCheck

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
    """Schemas that take more than this one, those first that are the likeliest to compile and give up the least. None
    where it is not certain that they take more."""
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
    every = [Change(pointer, keyword, None) for pointer, node in nodes.items() for keyword in node]
    every.sort(key=lambda change: -len(change.pointer))
    if isinstance(refused, InvalidSchema):
        # The mistake is the value of a keyword, or within it.
        at = refused.pointer
        return [own for own in every if _is_within(at, own.pointer + escape_token(own.keyword))][:1]
    if not isinstance(refused, GrammarTooComplex | UnsupportedSchema):
        return []
    place, found = refused.pointer or "", list[Change]()
    if isinstance(refused, UnsupportedSchema):
        found = [own for own in every if own.keyword == refused.keyword and _is_within(place, own.pointer)][
            :1
        ]
        if refused.keyword in GIVEN_UP and found:
            return found
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
            return _given_up(nodes, at, step)
        at += f"/{step}"
    if _DEFINITIONS.isdisjoint(steps):
        return None
    # Any place may refer to this one.
    turning = (
        (pointer, keyword) for pointer, node in nodes.items() for keyword in node if keyword in _TURNING
    )
    return next((_given_up(nodes, *place) for place in turning), None)


def _given_up(nodes: dict[str, dict[str, Any]], pointer: str, keyword: str) -> Change:
    is_choice = keyword == "oneOf" and "anyOf" not in nodes[pointer]
    return Change(pointer, keyword, "anyOf" if is_choice else None)


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


MOST_STEPS: Final = 20 * MAX_STEPS
_MOST_TRIES: Final = 400
_STEPS_IN_MS: Final = 500
_SHOWN: Final = 5


def cost_lines(cost: Cost) -> list[str]:
    found = [
        f"translation: {cost.steps:,} of {MAX_STEPS:,} steps, about {max(1, cost.steps // _STEPS_IN_MS)} ms",
        f"rules: {cost.rules:,} of {MAX_RULES:,}",
        f"Lark: {cost.lark_bytes:,} of {MAX_LARK_BYTES:,} bytes",
    ]
    if cost.unique_arrays:
        places = "1 place" if cost.unique_arrays == 1 else f"{cost.unique_arrays} places"
        found.append(f"compared beside the grammar: unique items at {places}")
    return found


def ordered_objects(schema: Any) -> list[str]:
    """Pointers of the objects that list several properties, which come in that order."""
    return [
        pointer
        for pointer, node in subschemas(schema)
        if isinstance(listed := node.get("properties"), dict) and len(cast(dict[str, Any], listed)) > 1
    ]


def smallest_change(
    constraint: JsonSchemaConstraint, refused: InvalidRequest, *, most_steps: int = MOST_STEPS
) -> Change | None:
    """One keyword to change, so that the schema compiles; None where no single one is found within a bounded search.
    The keyword that the refusal names comes first, then those that say the least about a value. most_steps: of the
    search."""
    changes = sorted(all_changes(constraint.schema), key=lambda change: _rank(change, refused))
    steps = 0
    for change in changes[:_MOST_TRIES]:
        try:
            enforce(replace(constraint, schema=changed(constraint.schema, change)))
        except InvalidRequest:
            steps += max(spent(), 1)
            if steps > most_steps:
                return None
        else:
            return change
    return None


def _rank(change: Change, refused: InvalidRequest) -> tuple[bool, bool, int, bool]:
    named = isinstance(refused, UnsupportedSchema) and refused.keyword == change.keyword
    # A pointer may be that of the items of an array with the keyword.
    near = isinstance(refused, UnsupportedSchema) and f"{refused.pointer}/".startswith(f"{change.pointer}/")
    return not (named and near), not named, GIVEN_UP.index(change.keyword), change.becomes is None


def explain(constraint: JsonSchemaConstraint, *, most_steps: int = MOST_STEPS) -> Explanation:
    """What a schema costs, or what to change. most_steps: of the search for a change."""
    try:
        cost = enforce(constraint).cost
    except InvalidRequest as error:
        lines = [f"refused: {error.message}"]
        if isinstance(error, GrammarTooComplex):
            lines.append(f"steps until then: {spent():,} of {MAX_STEPS:,}")
        change = smallest_change(constraint, error, most_steps=most_steps)
        lines.append(f"it compiles {change.line()}" if change else "changing one keyword does not fix it")
        return Explanation(False, tuple(lines))
    lines = ["compiles", *cost_lines(cost)]
    in_order = constraint.property_order in (None, PropertyOrder.SCHEMA)
    ordered = ordered_objects(constraint.schema) if in_order else []
    if ordered:
        shown = ", ".join(pointer or "the top-level object" for pointer in ordered[:_SHOWN])
        more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
        lines.append(f"keys are written in the order in which `properties` lists them: {shown}{more}")
    return Explanation(True, tuple(lines))


def leaves_at(enforced: Enforced, text: str) -> int | None:
    """The index of the first character that nothing allowed continues with; `len(text)` where the text is only a
    beginning; None where it is complete. Raises InvalidGrammar, GrammarTooComplex."""
    matcher = made_matcher(tokenizer(), enforced.compiled.lark)
    uniqueness = enforced.compiled.uniqueness
    unique = None if uniqueness is None else UniquenessCheck(uniqueness)
    state = None if unique is None else unique.start
    for index, character in enumerate(text):
        data = character.encode("utf-8", "surrogatepass")
        for byte in data:  # the tokens of single bytes are the first ones
            if matcher.validate_tokens([byte]) != 1:
                if matcher.is_error():
                    raise too_complex(matcher)
                return index
            if not matcher.consume_token(byte):
                raise too_complex(matcher)
        if unique is not None and state is not None:
            state = unique.written(state, data)
            if state is None:
                return index
    return None if matcher.is_accepting() else len(text)
