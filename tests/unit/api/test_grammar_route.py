"""/extras/grammar: the grammar of a constraint, or the refusal that a generation would get."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.core.constraint import JsonSchemaConstraint, RegexConstraint
from tests.support.engine.fake_client import FakeModels
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

TAGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            enforce(JsonSchemaConstraint(SCHEMA)).gbnf(),
        ),
        (
            {"response_format": {"type": "json_object"}},
            enforce(JsonSchemaConstraint({"type": "object"})).gbnf(),
        ),
        (
            {"response_format": {"type": "regex", "value": "[ab]{2}"}},
            enforce(RegexConstraint("[ab]{2}")).gbnf(),
        ),
    ],
)
async def test_a_constraint_becomes_gbnf_without_a_model(body: dict[str, Any], expected: str) -> None:
    models = FakeModels()
    async with http_client(models) as client:
        response = await client.post("/extras/grammar", json=body)
    assert (response.status_code, response.json()) == (200, {"grammar": expected})
    assert models.leased == []
    parse_gbnf(response.json()["grammar"])


async def test_gbnf_is_checked() -> None:
    async with http_client() as client:
        good = await client.post("/extras/grammar", json={"grammar": 'root ::= "yes" | "no"'})
        bad = await client.post("/extras/grammar", json={"grammar": "root ::= missing"})
    assert good.status_code == 200
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_grammar")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, "invalid_request", "response_format or grammar"),
        ({"response_format": {"type": "text"}}, "invalid_request", "response_format or grammar"),
        ({"response_format": {"type": "regex", "value": "(a"}}, "unsupported_pattern", "character"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}},
            "invalid_schema",
            "/type",
        ),
    ],
)
async def test_a_refusal_says_where(body: dict[str, Any], code: str, words: str) -> None:
    async with http_client() as client:
        response = await client.post("/extras/grammar", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    assert words in response.json()["error"]["message"]


FEW_ITEMS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"type": "boolean"}],
        "minItems": 2,
        "maxItems": 2,
    },
    "uniqueItems": True,
}


@pytest.mark.parametrize(
    ("schema", "compiles", "first", "last"),
    [
        ({"type": "integer"}, True, "compiles", "Lark: "),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            True,
            "compiles",
            "compared beside the grammar",
        ),
        (FEW_ITEMS, False, "refused: unsupported JSON Schema", "it compiles without `uniqueItems` at /"),
        ({"type": "objekt"}, False, "refused: ", "changing one keyword does not fix it"),
    ],
)
async def test_a_schema_is_explained(schema: Any, compiles: bool, first: str, last: str) -> None:
    body = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    async with http_client() as client:
        response = await client.post("/extras/grammar/explain", json=body)
    assert response.status_code == 200
    explanation = response.json()
    assert explanation["compiles"] is compiles
    assert explanation["lines"][0].startswith(first) and explanation["lines"][-1].startswith(last)


@pytest.mark.parametrize(
    "body", [{}, {"grammar": 'root ::= "a"'}, {"response_format": {"type": "json_object"}}]
)
async def test_only_a_schema_is_explained(body: dict[str, Any]) -> None:
    async with http_client() as client:
        response = await client.post("/extras/grammar/explain", json=body)
    assert response.status_code == 400 and "JSON Schema" in response.json()["error"]["message"]
