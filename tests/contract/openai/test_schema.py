"""Our requests and replies against Jan's API document: `api.json` has its routes and schemas without the prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest
from jsonschema import Draft202012Validator

from jan_serve.api.app import create_app
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import http_client, make_settings

DOCUMENT: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "api.json").read_text(encoding="utf-8"))
SCHEMAS: Final[dict[str, Any]] = DOCUMENT["components"]["schemas"]
ROUTES: Final[dict[str, dict[str, str | None]]] = DOCUMENT["routes"]


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """Our own document."""
    return create_app(make_settings(), FakeModels(), render_inline, translate_inline).openapi()


def check(name: str, instance: object) -> None:
    """The instance fits Jan's schema of this name."""
    schema: Any = {**DOCUMENT, "$ref": f"#/components/schemas/{name}"}
    errors = [error.message for error in cast(Any, Draft202012Validator(schema)).iter_errors(instance)]
    assert not errors


def test_every_route_is_served(ours: dict[str, Any]) -> None:
    for route in ROUTES:
        method, path = route.split()
        operation = ours["paths"][path][method.lower()]
        assert operation["operationId"] == ROUTES[route]["operationId"]
        assert operation["security"] == [{"HTTPBearer": []}]
    assert ours["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    assert "security" not in ours["paths"]["/health"]["get"]


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def bounds(schema: dict[str, Any]) -> tuple[Any, Any]:
    """Minimum and maximum, of the one branch that has them."""
    for branch in [schema, *cast(list[dict[str, Any]], schema.get("anyOf", []))]:
        if "minimum" in branch or "maximum" in branch:
            return branch.get("minimum"), branch.get("maximum")
    return None, None


REQUESTS: Final = [(route, entry["request"]) for route, entry in ROUTES.items() if entry["request"]]


@pytest.mark.parametrize(("route", "name"), REQUESTS)
def test_every_request_field_is_known_with_its_default_and_range(
    ours: dict[str, Any], route: str, name: str
) -> None:
    method, path = route.split()
    body = ours["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    fields = resolved(ours, body)["properties"]
    for field, theirs in SCHEMAS[name]["properties"].items():
        assert field in fields, field
        mine = fields[field]
        if field != "messages":  # an empty list by a factory, which a schema does not show
            assert mine.get("default") == theirs.get("default"), field
        assert bounds(mine) == bounds(theirs), field
    assert set(resolved(ours, body).get("required", [])) == set(SCHEMAS[name].get("required", []))


MESSAGES: Final = [{"role": "user", "content": "Hi"}]
CALLS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("POST /v1/completions", {"prompt": "a"}),
    ("POST /v1/completions", {"prompt": ["a", "b"], "logprobs": 2, "echo": True, "n": 2, "best_of": 3}),
    ("POST /v1/completions", {"prompt": "a", "suffix": "b", "max_tokens": 0}),
    ("POST /v1/chat/completions", {"messages": MESSAGES}),
    ("POST /v1/chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, "n": 2}),
    ("POST /extras/tokenize", {"input": "a"}),
    ("POST /extras/tokenize/count", {"input": "a"}),
    ("POST /extras/detokenize", {"tokens": [65, 256]}),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("route", "body"), CALLS)
async def test_replies_fit_their_schemas(route: str, body: dict[str, Any]) -> None:
    name = ROUTES[route]["response"]
    assert name is not None
    async with http_client() as client:
        response = await client.post(route.split()[1], json=body)
    assert response.status_code == 200
    check(name, response.json())


@pytest.mark.anyio
async def test_the_model_list_fits_its_schema() -> None:
    async with http_client() as client:
        body = (await client.get("/v1/models")).json()
        check("ModelList", body)
        [entry] = body["data"]
        assert (await client.get(f"/v1/models/{entry['id']}")).json() == entry
        assert (await client.get("/v1/models/none/such")).json()["error"]["code"] == "model_not_found"


@pytest.mark.anyio
@pytest.mark.parametrize("route", [route for route, _ in REQUESTS])
async def test_violations_fit_the_validation_schema_and_openais_envelope(route: str) -> None:
    bodies: list[Any] = [
        {"model": 3, "input": 4, "tokens": "x", "messages": "y", "prompt": {}},
        [],
        "text",
        1,
        None,
    ]
    async with http_client() as client:
        for body in bodies:
            response = await client.post(
                route.split()[1], content=json.dumps(body), headers={"content-type": "application/json"}
            )
            assert response.status_code == 422
            check("HTTPValidationError", response.json())
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["code"] == "validation_error"


@pytest.mark.anyio
async def test_the_range_is_in_the_message() -> None:
    async with http_client() as client:
        for field, value, words in [
            ("top_p", -1, "from 0 to 1"), ("min_p", 5, "from 0 to 1"), ("temperature", 1e9, "from 0 to 100"),
            ("temperature", -5, "from 0 to 100"), ("repeat_penalty", 0, "above 0"),
            ("stop", [""], "empty"), ("max_tokens", -5, "0 or more"), ("top_k", -2, "0 or more"),
        ]:  # fmt: skip
            response = await client.post("/v1/completions", json={"prompt": "a", field: value})
            assert response.status_code in (400, 422)
            error = response.json()["error"]
            assert error["param"] == field
            assert words in error["message"], error
        response = await client.post(
            "/v1/completions",
            content=b'{"prompt":"a","temperature":NaN}',
            headers={"content-type": "application/json"},
        )
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.anyio
async def test_embeddings_in_both_encodings() -> None:
    async with http_client() as client:
        floats = (await client.post("/v1/embeddings", json={"input": ["a", "bc"]})).json()
        base64 = (
            await client.post("/v1/embeddings", json={"input": [[1], [2, 3]], "encoding_format": "base64"})
        ).json()
    assert [entry["index"] for entry in floats["data"]] == [0, 1]
    assert floats["usage"] == base64["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert floats["data"][0]["embedding"] == pytest.approx([0.6, 0.8, 0.0, 0.0])
    assert base64["data"][0]["embedding"] == "mpkZP83MTD8AAAAAAAAAAA=="
    assert floats["model"] == "fake"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ["a"] * 5000}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "dimensions": 99}, "dimensions"),
        ("/extras/detokenize", {"tokens": [99999999]}, "tokens"),
        ("/extras/detokenize", {"tokens": [-5]}, "tokens"),
        ("/extras/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"999999": 5}}, "logit_bias"),
    ],
)
async def test_values_that_are_refused(path: str, body: dict[str, Any], param: str) -> None:
    async with http_client() as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.anyio
async def test_tokens_there_and_back() -> None:
    async with http_client() as client:
        tokens = (await client.post("/extras/tokenize", json={"input": "é<s>"})).json()["tokens"]
        count = (await client.post("/extras/tokenize/count", json={"input": "é<s>"})).json()["count"]
        text = (await client.post("/extras/detokenize", json={"tokens": tokens})).json()["text"]
    assert (len(tokens), text) == (count, "é<s>")


@pytest.mark.anyio
@pytest.mark.parametrize(("route", "body"), [call for call in CALLS if call[0].startswith("POST /v1/")])
async def test_null_is_no_value(route: str, body: dict[str, Any]) -> None:
    """OpenAI's client sends null for None, and its document has null for nearly all fields."""
    name = ROUTES[route]["request"]
    assert name is not None
    nulls = dict.fromkeys(SCHEMAS[name]["properties"].keys() - {"max_tokens"})
    engine = FakeClient()
    async with http_client(FakeModels(engine)) as client:
        for form in (body, {**nulls, **body}):
            assert (await client.post(route.split()[1], json=form)).status_code == 200
    asked = [
        msgspec.structs.replace(request, id=0, sampling=msgspec.structs.replace(request.sampling, seed=0))
        for request in engine.requests
    ]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
