"""Terms and conjunctions as the values that they allow, against jsonschema."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.ir import ANY_VALUE
from jan_serve.constraint.limits import MAX_IN_PLACE_DEPTH
from jan_serve.errors import GrammarTooComplex, InvalidRequest, InvalidSchema, UnsupportedSchema
from tests.unit.constraint.json_schema.schemas import SCHEMAS, VALUES, is_valid
from tests.unit.constraint.json_schema.type_sets import allows

MANY = st.lists(VALUES, min_size=10, max_size=10)


def expander_of(schema: Any) -> tuple[Expander, Document]:
    document = Document(schema)
    return Expander(document), document


@settings(max_examples=200)
@given(SCHEMAS, MANY)
def test_a_schema_that_holds_and_one_that_fails(schema: Any, values: list[Any]) -> None:
    expander, document = expander_of(schema)
    for conj, wanted in (
        (expander.terms.positive(document.root), True),
        (expander.terms.negative(document.root), False),
    ):
        try:
            sets = expander.expand(conj)
        except InvalidRequest:
            continue
        for value in values:
            assert allows(sets, value) is (is_valid(schema, value) is wanted), value


@settings(max_examples=100)
@given(SCHEMAS, SCHEMAS, MANY)
def test_nothing_satisfies_what_is_called_nothing(a: Any, b: Any, values: list[Any]) -> None:
    expander, document = expander_of({"$defs": {"a": a, "b": b}})
    first, second = (expander.terms.positive(document.child(document.root, "$defs", c)) for c in "ab")
    try:
        nothing = expander.is_nothing(expander.terms.conjoin(first, second))
    except InvalidRequest:
        return
    assert not (nothing and any(is_valid(a, value) and is_valid(b, value) for value in values))


KEYWORDS: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "one of two that overlap": (
        {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
        [1, 3.5, "x"],
        [4, 2.5],
    ),
    "if without then": ({"if": {"type": "string"}, "else": {"type": "null"}}, ["a", None], [1]),
    "a property that brings another": (
        {"type": "object", "dependentRequired": {"a": ["b"]}},
        [{}, {"b": 1}, {"a": 1, "b": 1}],
        [{"a": 1}],
    ),
    "a property that brings a schema": (
        {"type": "object", "dependentSchemas": {"a": {"maxProperties": 1}}},
        [{"a": 1}, {"b": 1, "c": 1}],
        [{"a": 1, "b": 1}],
    ),
    "both in the older spelling": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "dependencies": {"a": ["b"], "c": {"required": ["d"]}},
        },
        [{"a": 1, "b": 1}, {"c": 1, "d": 1}, 1],
        [{"a": 1}, {"c": 1}],
    ),
    "all of something, nothing and everything": ({"allOf": [{"oneOf": [True, False]}, False]}, [], [1]),
    "names": ({"propertyNames": {"maxLength": 1}}, [{"a": 1}, {}], [{"ab": 1}]),
    "equal numbers in an enumeration": ({"enum": [1, "a", [True]]}, [1, 1.0, "a", [True]], [True, [1]]),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_that_apply_schemas(name: str) -> None:
    schema, accepted, refused = KEYWORDS[name]
    expander, document = expander_of(schema)
    sets = expander.expand(expander.terms.positive(document.root))
    assert [value for value in [*accepted, *refused] if allows(sets, value)] == accepted


def test_a_recursive_schema_is_expanded_one_level_at_a_time() -> None:
    expander, document = expander_of({"type": "object", "additionalProperties": {"$ref": "#"}})
    root = expander.terms.positive(document.root)
    sets = expander.expand(root)
    assert expander.algebra.lookup(sets.object[0], "any") == root
    assert expander.expand(root) is sets
    assert expander.expand(()) is ANY_VALUE


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#"}]},
        {"type": "object", "anyOf": [{"minProperties": 1}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
    ],
)
def test_a_schema_that_applies_itself_to_the_same_value_is_refused(schema: dict[str, Any]) -> None:
    expander, document = expander_of(schema)
    for _ in range(2):
        with pytest.raises(UnsupportedSchema, match="applies itself"):
            expander.expand((document.root.positive,))


@pytest.mark.parametrize(("levels", "fine"), [(MAX_IN_PLACE_DEPTH - 1, True), (MAX_IN_PLACE_DEPTH, False)])
def test_chains_of_schemas_for_one_value_are_limited(levels: int, fine: bool) -> None:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(levels):
        schema = {"allOf": [schema], "minimum": 1}
    expander, document = expander_of(schema)
    if fine:
        assert allows(expander.expand((document.root.positive,)), None)
        return
    with pytest.raises(GrammarTooComplex, match=str(MAX_IN_PLACE_DEPTH)):
        expander.expand((document.root.positive,))


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"enum": 3}, "/enum"),
        ({"anyOf": {}}, "/anyOf"),
        ({"oneOf": [1]}, "/oneOf/0"),
        ({"dependentRequired": []}, "/dependentRequired"),
        ({"dependentRequired": {"a": [1]}}, "/dependentRequired"),
        ({"if": 1, "then": True}, "/if"),
    ],
)
def test_a_wrong_value_names_its_place(schema: dict[str, Any], place: str) -> None:
    expander, document = expander_of(schema)
    with pytest.raises(InvalidSchema) as caught:
        expander.expand((document.root.positive,))
    assert caught.value.pointer == place


def _kinds(count: int, **each: Any) -> list[dict[str, Any]]:
    """Alternatives that `kind` tells apart."""
    return [
        {"properties": {"kind": {"const": f"k{n}"}, f"p{n}": {"type": "integer"}}, **each}
        for n in range(count)
    ]


ALTERNATIVES: dict[str, dict[str, Any]] = {
    "a kind that must be there": {"required": ["kind"], "oneOf": _kinds(12)},
    "asked for beside the alternatives": {"allOf": [{"required": ["kind"]}, {"oneOf": _kinds(12)}]},
    "a kind that may be missing": {"oneOf": _kinds(12, additionalProperties=False)},
    "two names that must be there": {
        "oneOf": [*_kinds(11, required=["kind", "p0"]), {"required": ["kind", "p1"]}]
    },
    "names that only one kind may have": {
        "dependentSchemas": {
            f"p{n}": {"properties": {"kind": {"enum": [f"k{n}", f"k{n % 3}"]}}} for n in range(14)
        }
    },
    "one name of each of several sets": {
        "patternProperties": {"^p[0-9]$": {"type": "integer"}},
        "additionalProperties": False,
        "not": {
            "anyOf": [
                {"propertyNames": {"not": {"enum": names}}}
                for names in (["p0", "p1"], ["p0", "p9"], ["p1", "p9"], ["p0", "p1", "p3"])
            ]
        },
    },
    "none of many": {"not": {"anyOf": _kinds(12, required=["kind"])}},
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_alternatives_that_a_property_tells_apart_do_not_multiply(name: str) -> None:
    schema = {"type": "object", **ALTERNATIVES[name]}
    expander, document = expander_of(schema)
    sets = expander.expand(expander.terms.positive(document.root))
    assert len(sets.object) < 60
    scalars: list[Any] = [None, 1, "x"]
    for kind, first, second, third in product([None, "k0", "k1", "k11", "other"], scalars, scalars, scalars):
        members = {"kind": kind, "p0": first, "p1": second, "p9": third}
        value = {key: member for key, member in members.items() if member is not None}
        assert allows(sets, value) is is_valid(schema, value), value
