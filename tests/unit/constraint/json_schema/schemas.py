"""Schemas and values to draw, and jsonschema's verdict on them."""

from __future__ import annotations

from typing import Any, cast

import jsonschema
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d")
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, -3, 1.5, "", "a", "ab", "b7"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*NAMES, "x1", "y")), inner, max_size=3)
    ),
    max_leaves=6,
)
SMALL = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b$", "^[ab]*$", "[0-9]", "^(a|b7)$"])


def _limits(low: str, high: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={low: SMALL, high: SMALL})


LEAVES = st.one_of(
    st.booleans(),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])}
    ),
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries({"pattern": PATTERNS}),
    _limits("minLength", "maxLength"),
    st.fixed_dictionaries(
        {}, optional={"minimum": st.integers(-3, 3), "exclusiveMaximum": st.integers(-3, 3)}
    ),
    st.fixed_dictionaries({"multipleOf": st.sampled_from([1, 2, 0.5])}),
)


def objects_of(inner: Any) -> Any:
    """Schemas of objects over child schemas."""
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    objects: Any = st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^x", "[0-9]"]), inner, max_size=1),
            "propertyNames": st.sampled_from([{"pattern": "^[a-x]"}, {"maxLength": 1}]),
            "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=1),
            "maxProperties": SMALL,
        },
    )
    return objects


def arrays_of(inner: Any) -> Any:
    """Schemas of arrays over child schemas."""
    branches: Any = st.lists(inner, min_size=1, max_size=3)
    arrays: Any = st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "prefixItems": branches,
            "contains": inner,
            "minItems": SMALL,
            "maxItems": SMALL,
        },
    )
    return arrays


def combined_of(inner: Any) -> Any:
    """Schemas that apply child schemas in place."""
    branches = st.lists(inner, min_size=1, max_size=3)
    conditions: dict[str, Any] = {"if": inner, "then": inner}
    conditionals: Any = st.fixed_dictionaries(conditions, optional={"else": inner})
    return st.one_of(
        st.fixed_dictionaries({"anyOf": branches}),
        st.fixed_dictionaries({"oneOf": branches}),
        st.fixed_dictionaries({"allOf": branches}),
        st.fixed_dictionaries({"not": inner}),
        conditionals,
    )


def _schemas(inner: Any) -> Any:
    objects, combined = objects_of(inner), combined_of(inner)
    return st.one_of(objects, arrays_of(inner), combined, st.builds(both, objects, combined))


def both(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**a, **b}


SCHEMAS = st.recursive(LEAVES, _schemas, max_leaves=8)


def is_valid(schema: Any, value: Any) -> bool:
    validator: Any = jsonschema.Draft202012Validator(_for_python(schema))
    return validator.is_valid(value)


def _for_python(schema: Any) -> Any:
    """jsonschema searches with `re`, whose `$` also matches before a line feed at the end."""
    if isinstance(schema, list):
        return [_for_python(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("dict[str, Any]", schema)
    return {
        key: part.replace("$", "\\Z") if key == "pattern" and isinstance(part, str) else _for_python(part)
        for key, part in members.items()
    }
