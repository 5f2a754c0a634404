from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
    Whitespace,
)
from jan_serve.errors import InvalidSchema
from tests.support.openai_requests import chat, completion

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {}}}


@pytest.mark.parametrize(
    ("response_format", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": None}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_object", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            JsonSchemaConstraint(SCHEMA),
        ),
        ({"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": False}}, JsonSchemaConstraint(False)),
        ({"type": "json_object", "whitespace": "compact"}, JsonObjectConstraint(Whitespace.COMPACT)),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "whitespace": "flexible"},
            JsonSchemaConstraint(SCHEMA, Whitespace.FLEXIBLE),
        ),
        ({"type": "regex", "value": "a+"}, RegexConstraint("a+")),
        ({"type": "regex_schema", "regex_schema": "a+"}, RegexConstraint("a+")),
    ],
)
def test_spellings_of_response_format(response_format: dict[str, Any], constraint: Constraint | None) -> None:
    assert chat(response_format=response_format).constraint == constraint


def test_response_format_has_precedence_over_a_grammar() -> None:
    assert chat(grammar="root ::= x").constraint == GbnfConstraint("root ::= x")
    assert completion(grammar="").constraint == GbnfConstraint("")
    assert chat(grammar="g", response_format={"type": "json_object"}).constraint == JsonObjectConstraint()


def test_a_schema_is_an_object_or_a_boolean() -> None:
    schemas: list[Any] = [3, "x", []]
    for schema in schemas:
        with pytest.raises(InvalidSchema):
            chat(response_format={"type": "json_object", "schema": schema})
