"""Random schemas against jsonschema: what the grammar writes is valid, valid instances are accepted, and mutants that
jsonschema refuses are refused."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.errors import InvalidRequest
from jan_serve.grammar import Grammar, Recognizer, json_schema_to_grammar
from tests.unit.grammar.sampling import Sampler

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


def _schemas(inner: Any) -> Any:
    branches = st.lists(inner, min_size=1, max_size=3)
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
    conditions: dict[str, Any] = {"if": inner, "then": inner}
    conditionals: Any = st.fixed_dictionaries(conditions, optional={"else": inner})
    combined: Any = st.one_of(
        st.fixed_dictionaries({"anyOf": branches}),
        st.fixed_dictionaries({"oneOf": branches}),
        st.fixed_dictionaries({"allOf": branches}),
        st.fixed_dictionaries({"not": inner}),
        conditionals,
    )
    return st.one_of(objects, arrays, combined, st.builds(_both, objects, combined))


def _both(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**a, **b}


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
SCHEMAS = st.recursive(LEAVES, _schemas, max_leaves=8)


def _grammar(schema: Any) -> Grammar | None:
    """The grammar, or None where the schema is refused."""
    try:
        return json_schema_to_grammar(schema)
    except InvalidRequest:
        return None


def _is_valid(schema: Any, value: Any) -> bool:
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


@settings(max_examples=150)
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_the_grammar_writes_is_valid(schema: Any, seed: int) -> None:
    grammar = _grammar(schema)
    if grammar is None:
        return
    sampler, random, recognizer = Sampler(grammar, depth=12), Random(seed), Recognizer(grammar)
    for _ in range(5):
        text = sampler.text(random)
        assert recognizer.matches(text)
        value = json.loads(text, object_pairs_hook=_without_repeated_names, parse_float=_exact)
        assert _is_open(value) or _is_valid(schema, value), text


@settings(max_examples=300)
@given(SCHEMAS, st.lists(VALUES, min_size=8, max_size=8))
def test_a_value_is_accepted_exactly_if_it_is_valid(schema: Any, values: list[Any]) -> None:
    # Naming all properties first fixes one order for every schema and instance; constants follow their own members.
    schema = json.loads(json.dumps(schema, sort_keys=True))
    grammar = _grammar({"$defs": {"s": schema}, "allOf": [_ORDER, {"$ref": "#/$defs/s"}]})
    if grammar is None:
        return
    recognizer = Recognizer(grammar)
    for value in values:
        text = json.dumps(value, sort_keys=True)
        assert recognizer.matches(text) == _is_valid(schema, value), text


_ORDER: Any = {
    "properties": {name: True for name in NAMES},
    "additionalProperties": {"$ref": "#/allOf/0"},
    "items": {"$ref": "#/allOf/0"},
}
for _name in NAMES:
    _ORDER["properties"][_name] = {"$ref": "#/allOf/0"}
_NO_VERDICT = object()


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> Any:
    """Unlisted names may repeat, which JSON Schema gives no meaning to."""
    if len({name for name, _ in pairs}) < len(pairs) or any(_is_open(value) for _, value in pairs):
        return _NO_VERDICT
    return dict(pairs)


def _exact(text: str) -> Any:
    """jsonschema computes with doubles: it can only judge decimals that are short enough for them."""
    digits = sum(c.isdigit() for c in text.lower().partition("e")[0])
    return float(text) if digits <= 15 else _NO_VERDICT


def _is_open(value: Any) -> bool:
    return value is _NO_VERDICT or (isinstance(value, list) and any(map(_is_open, cast("list[Any]", value))))
