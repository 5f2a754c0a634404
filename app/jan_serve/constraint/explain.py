"""This module is for people:

it says what a JSON Schema costs as a grammar, which keyword to change where it is refused, and where a text leaves a
constraint.
"""

from __future__ import annotations

from typing import Any, Final, cast

from msgspec.structs import replace

from jan_serve.constraint.enforce import Cost, Enforced, enforce
from jan_serve.constraint.json_schema.document import subschemas
from jan_serve.constraint.limits import MAX_LARK_BYTES, MAX_RULES, MAX_STEPS, spent
from jan_serve.constraint.loosen import GIVEN_UP, Change, all_changes, changed
from jan_serve.constraint.trial import tokenizer
from jan_serve.core.constraint import Explanation, JsonSchemaConstraint, PropertyOrder
from jan_serve.errors import GrammarTooComplex, InvalidRequest, UnsupportedSchema
from jan_serve.lark_matcher import made_matcher, too_complex
from jan_serve.text.uniqueness.check import UniquenessCheck

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
    search.
    """
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
    beginning; None where it is complete.

    Raises InvalidGrammar, GrammarTooComplex.
    """
    matcher = made_matcher(tokenizer(), enforced.lark.text)
    unique = None if enforced.uniqueness is None else UniquenessCheck(enforced.uniqueness)
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
