"""Bodies that break a schema get places of their own and plain words, and nothing of how this server is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.drawn_grid import some
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

VALUES: list[Any] = [
    0, -1.5, True, "x", [], {}, [0], ["x"], [{}], [[]], {"type": 0}, {"type": "x"}, [{"type": "x"}], [{"role": 0}],
    [{"role": "user", "content": 0}], [{"role": "user", "content": [0]}], [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 0}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 0}}]}],
    [{"role": "assistant", "tool_calls": [{}]}], [{"role": "assistant", "tool_calls": 0}],
    [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": 0}}]}], [{"role": "tool", "content": 0}],
    [{"role": "user", "content": [{"type": "tool_result"}]}], [{"role": "user", "content": [{"type": "image"}]}],
    [{"type": "function"}], [{"type": "function", "function": {}}], [{"type": "message", "content": 0}],
    [{"type": "function_call"}], [{"type": "function_call_output", "output": 0}], {"type": "function", "function": 0},
]  # fmt: skip
NESTED = ("messages", "tools", "input", "tool_choice", "functions")
INTERNAL = re.compile(
    r"function-(before|after|plain|wrap)|tagged-union|instance of|_\w+\(|\w\(\)|\bnullable|discriminator"
    r"|(list|dict|tuple|union|constrained-\w+)\[|\b[A-Z][a-z]+[A-Z]\w+|dictionary|\bjan_serve"
)
ALLOWED = re.compile(r"LoRA|untagged enum \w+")


def strings_of(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in cast(dict[str, Any], value).values():
                yield from strings_of(item)
        case list():
            for item in cast(list[Any], value):
                yield from strings_of(item)
        case _:
            pass


def fields_of(document: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return list(schema.get("properties", {}))


@pytest.mark.drawn
async def test_no_refusal_shows_the_inside(subtests: pytest.Subtests) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        document = (await client.get("/openapi.json")).json()
        for path, operations in document["paths"].items():
            operation = operations.get("post")
            if operation is None or path.startswith("/tgi") or "{" in path:
                continue
            with subtests.test(path):
                for field in fields_of(document, operation):
                    for value in some(VALUES if field in NESTED else VALUES[:13], 5, path + field):
                        response = await client.post(path, json={field: value})
                        if response.status_code not in (400, 422):
                            continue
                        is_json = response.headers["content-type"] == "application/json"
                        for text in strings_of(response.json() if is_json else response.text):
                            if text.startswith("req_"):
                                continue
                            found = INTERNAL.search(ALLOWED.sub("", text))
                            assert found is None, f"{field}: {value!r} -> {text!r}"


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "valid string, or"),
        ({"messages": [{"content": "x"}]}, "messages[0]", "'role' is needed"),
        ({"messages": [{"role": "x"}]}, "messages[0]", "'role' must be one of"),
        ({"messages": [3]}, "messages[0]", "an object"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": 3}}]}]},
         "messages[0].tool_calls[0].function.name", "valid string"),
        ({"stop": [1]}, "stop[0]", "valid string"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "required"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 3}}]},
         "tools[0].function.strict", "boolean"),
        ({"lora": [{"scale": "x"}]}, "lora[0].scale", "number"),
    ],
)  # fmt: skip
async def test_the_place_is_one_of_the_body(body: dict[str, Any], param: str, words: str) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        hi = {"messages": [{"role": "user", "content": "Hi"}]}
        response = await client.post("/v1/chat/completions", json=hi | body)
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["param"] == param
    assert words in error["message"]


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


PLACES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [CALL | {"id": 3}]}]},
     "messages[0].tool_calls[0].id"),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [
        {"function": {"name": "f", "arguments": 3}}]}]},
     "messages[0].tool_calls[0].function.arguments"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
     "messages[0].content[0].text"),
    ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
    ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", "function": {}, "name": 3}]}, "tools[0].name"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "text", "text": "Hi"}}]}]},
     "messages[0].content[0].source.data"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "image": {"source": 1}}]}]},
     "messages[0].content[0].source"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "place"), PLACES)
async def test_the_place_is_no_member_that_has_the_name_of_a_type(
    path: str, body: dict[str, Any], place: str
) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        response = await client.post(path, json={"model": "m", "max_tokens": 1} | body)
    assert f": {place}: " in response.json()["error"]["message"]
