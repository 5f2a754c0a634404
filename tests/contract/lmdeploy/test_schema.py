"""Our requests against LMDeploy's API document: `api.json` has the fields of its requests, their types and defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest

from jan_serve.api.app import create_app
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings

ROUTES: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "api.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """Our own document."""
    return create_app(make_settings(), FakeModels(), render_inline, translate_inline).openapi()


def fields_of(document: dict[str, Any], route: str) -> dict[str, Any]:
    method, path = route.split()
    operation = document["paths"][f"/lmdeploy{path}"][method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return resolved(document, schema)["properties"]


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def types_of(document: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    schema = resolved(document, schema)
    branches = cast(list[dict[str, Any]], schema.get("anyOf", []))
    if branches:
        return set[str]().union(*(types_of(document, branch) for branch in branches))
    if "type" not in schema:
        return {"string", "object", "array", "null", "number", "integer", "boolean"}
    return {schema["type"]}


@pytest.mark.parametrize("route", ROUTES)
def test_every_field_is_known_with_its_types_and_default(ours: dict[str, Any], route: str) -> None:
    fields = fields_of(ours, route)
    for name, theirs in ROUTES[route].items():
        assert name in fields, name
        mine = fields[name]
        assert mine.get("default") == theirs.get("default"), name
        known = types_of(ours, mine)
        assert set(theirs["types"]) <= (known | {"integer"} if "number" in known else known), name
