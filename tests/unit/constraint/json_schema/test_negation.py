"""Values that break a schema, keyword by keyword, against jsonschema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.assertions import Assertions, with_types
from jan_serve.constraint.json_schema.document import Document, Node
from jan_serve.constraint.json_schema.ir import NO_VALUE
from jan_serve.constraint.json_schema.negation import Negation
from jan_serve.constraint.json_schema.terms import Terms
from jan_serve.errors import UnsupportedSchema
from tests.unit.constraint.json_schema.assertion_schemas import ASSERTION_SCHEMAS
from tests.unit.constraint.json_schema.schemas import VALUES, is_valid
from tests.unit.constraint.json_schema.type_sets import allows


def read(schema: Any) -> tuple[Negation, Node]:
    document = Document(schema)
    terms = Terms(document)
    return Negation(document, terms, Assertions(document, terms)), document.root


@settings(max_examples=300)
@given(ASSERTION_SCHEMAS, st.lists(VALUES, min_size=12, max_size=12))
def test_a_value_breaks_some_keyword_unless_it_is_valid(schema: dict[str, Any], values: list[Any]) -> None:
    negation, node = read(schema)
    marks = [broken for broken, _ in negation.marks(node)]
    parts = [*negation.parts(node), with_types(NO_VALUE, object=tuple(marks))]
    for value in values:
        assert any(allows(part, value) for part in parts) is not is_valid(schema, value), value


@given(VALUES, st.lists(VALUES, min_size=12, max_size=12))
def test_everything_but_one_constant(constant: Any, values: list[Any]) -> None:
    negation, node = read(True)
    others = negation.other_values(node, constant)
    for value in [constant, *values]:
        assert allows(others, value) is not is_valid({"const": constant}, value), value


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems", "uniqueItems"])
def test_what_has_no_complement_is_refused(keyword: str) -> None:
    negation, node = read({keyword: True})
    with pytest.raises(UnsupportedSchema) as caught:
        list(negation.parts(node))
    assert caught.value.keyword == "not"


def test_unique_items_that_are_not_asked_for_are_fine() -> None:
    negation, node = read({"type": "array", "uniqueItems": False})
    parts = list(negation.parts(node))
    assert any(allows(part, 1) for part in parts)
    assert not any(allows(part, [1, 1]) for part in parts)
