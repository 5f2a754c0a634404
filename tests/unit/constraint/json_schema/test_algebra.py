"""Intersection and union of type sets, by the values that they allow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import ANY_VALUE, ArraySpec, NameRule, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.json_value import as_array, as_object
from jan_serve.constraint.json_schema.strings import ANY_STRING, Pattern
from jan_serve.constraint.limits import MAX_SPECS
from jan_serve.errors import GrammarTooComplex, InvalidRequest
from tests.unit.constraint.json_schema.schemas import NAMES, SCHEMAS, VALUES
from tests.unit.constraint.json_schema.type_sets import allows, holds, is_array_of, is_object_of


def expanded(*schemas: Any) -> tuple[Expander, list[TypeSets]]:
    """Several schemas as parts of one document. Raises what the translation raises."""
    document = Document({"$defs": {str(number): schema for number, schema in enumerate(schemas)}})
    expander = Expander(document)
    nodes = [document.child(document.root, "$defs", str(number)) for number in range(len(schemas))]
    return expander, [expander.expand(expander.terms.positive(node)) for node in nodes]


@settings(max_examples=150)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=10, max_size=10))
def test_values_of_both_and_of_either(a: Any, b: Any, values: list[Any]) -> None:
    try:
        expander, (first, second) = expanded(a, b)
        both, either = expander.algebra.intersect(first, second), expander.algebra.unite(first, second)
    except InvalidRequest:
        return
    for value in values:
        assert allows(both, value) is (allows(first, value) and allows(second, value)), value
        assert allows(either, value) is (allows(first, value) or allows(second, value)), value


@settings(max_examples=150)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=10, max_size=10))
def test_a_spec_called_empty_has_no_value(a: Any, b: Any, values: list[Any]) -> None:
    try:
        expander, (sets,) = expanded({"allOf": [a, b]})
        algebra = expander.algebra
        arrays = [spec for spec in sets.array if algebra.is_empty_array(spec)]
        objects = [spec for spec in sets.object if algebra.is_empty_object(spec)]
    except InvalidRequest:
        return
    for value in values:
        items, members = as_array(value), as_object(value)
        assert items is None or not any(is_array_of(spec, items) for spec in arrays)
        assert members is None or not any(is_object_of(spec, members) for spec in objects)


EMPTY: dict[str, tuple[dict[str, Any], bool]] = {
    "too few items for the fewest": ({"minItems": 3, "maxItems": 2}, True),
    "a positional item that must be there": ({"prefixItems": [True, False], "minItems": 2}, True),
    "a positional item that may be missing": ({"prefixItems": [True, False], "minItems": 1}, False),
    "all further items": ({"prefixItems": [True], "items": False, "minItems": 2}, True),
    "an impossible item that is asked for": ({"contains": False}, True),
    "more wanted items than places": ({"contains": {"const": 1}, "minContains": 3, "maxItems": 2}, True),
    "an impossible item that is not": ({"contains": False, "minContains": 0}, False),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_arrays(name: str) -> None:
    schema, empty = EMPTY[name]
    expander, (sets,) = expanded({"type": "array", **schema})
    assert all(expander.algebra.is_empty_array(spec) for spec in sets.array) is empty


EMPTY_OBJECTS: dict[str, tuple[dict[str, Any], bool]] = {
    "more required than allowed": ({"required": ["a", "b"], "maxProperties": 1}, True),
    "an impossible property": ({"required": ["a"], "properties": {"a": False}}, True),
    "an impossible property that may be missing": ({"properties": {"a": False}}, False),
    "a name that no rule allows": ({"required": ["b"], "additionalProperties": False}, True),
    "some property, but none is allowed": (
        {"additionalProperties": False, "not": {"additionalProperties": {"type": "null"}}},
        True,
    ),
}


@pytest.mark.parametrize("name", EMPTY_OBJECTS)
def test_empty_objects(name: str) -> None:
    schema, empty = EMPTY_OBJECTS[name]
    expander, (sets,) = expanded({"type": "object", **schema})
    assert all(expander.algebra.is_empty_object(spec) for spec in sets.object) is empty


@given(st.lists(SCHEMAS, min_size=3, max_size=3), st.lists(VALUES, min_size=6, max_size=6))
def test_an_added_rule_applies_to_listed_and_other_names(schemas: list[Any], values: list[Any]) -> None:
    document = Document({"$defs": dict(zip("abc", schemas, strict=True))})
    expander = Expander(document)
    own, first, second = (expander.terms.positive(document.child(document.root, "$defs", c)) for c in "abc")
    spec = ObjectSpec({"a": own}, (NameRule(ANY_STRING, first),))
    longer = expander.algebra.add_rule(spec, NameRule(Pattern("^[ab]"), second))
    for value in values:
        for name in (*NAMES, "ax"):
            before, after = expander.algebra.lookup(spec, name), expander.algebra.lookup(longer, name)
            expected = holds(before, value) and (name[0] not in "ab" or holds(second, value))
            assert holds(after, value) is expected, (name, value)


def test_anything_is_neutral_and_kept_as_it_is() -> None:
    expander, (number,) = expanded({"type": "number"})
    assert expander.algebra.intersect(ANY_VALUE, number) is number
    assert expander.algebra.intersect(number, ANY_VALUE) is number
    assert expander.algebra.unite(number, ANY_VALUE) == ANY_VALUE


def test_alternatives_are_limited() -> None:
    expander, (some,) = expanded({"type": "array"})
    halves = [
        TypeSets(some.null, some.boolean, (), some.string, tuple(ArraySpec(low=n) for n in part), ())
        for part in (range(1, MAX_SPECS), range(MAX_SPECS, MAX_SPECS + 2))
    ]
    with pytest.raises(GrammarTooComplex, match=str(MAX_SPECS)):
        expander.algebra.unite(*halves)
