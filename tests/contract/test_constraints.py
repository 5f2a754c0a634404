"""Each protocol's spellings of a constraint: the engine gets the same grammar, or the client a refusal by name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BAD: dict[str, Any] = {"type": "objekt"}
MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT: dict[str, Any] = {"model": "m", "messages": MESSAGES}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "Hi"}
RESPONSE: dict[str, Any] = {"model": "m", "input": "Hi"}
MESSAGE: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 9}


def format_of(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def flat_format_of(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "name": "n", "schema": schema}


OPENAI = ("response_format", "json_schema", "guided_json", "structured_outputs", "format", "grammar")


def spelled(field: str, schema: Any) -> dict[str, Any]:
    match field:
        case "response_format":
            return {field: format_of(schema)}
        case "structured_outputs":
            return {field: {"json": schema}}
        case "grammar":
            return {field: {"type": "json", "value": schema}}
        case "text" | "output_config":
            return {field: {"format": flat_format_of(schema)}}
        case "output_format":
            return {field: flat_format_of(schema)}
        case _:
            return {field: schema}


ROUTES: list[tuple[str, dict[str, Any], str]] = [
    *(("/v1/chat/completions", CHAT, field) for field in OPENAI),
    *(("/v1/completions", PROMPT, field) for field in OPENAI),
    *(("/v1/responses", RESPONSE, field) for field in (*OPENAI, "text")),
    ("/lmdeploy/v1/chat/completions", CHAT, "response_format"),
    ("/lmdeploy/v1/completions", PROMPT, "response_format"),
    ("/lmdeploy/generate", {"prompt": "Hi"}, "response_format"),
    ("/v1/messages", MESSAGE, "output_config"),
    ("/v1/messages", MESSAGE, "output_format"),
    ("/api/chat", {**CHAT, "stream": False}, "format"),
    ("/api/generate", {**PROMPT, "stream": False}, "format"),
]


async def sent(path: str, body: dict[str, Any]) -> tuple[int, str, EngineRequest | None]:
    """Status, text, and what the engine got."""
    requests: list[EngineRequest] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        requests.append(request)
        async for event in saying('{"a": 1}')(request):
            yield event

    async with http_client(FakeModels(FakeClient(name="m", script=script))) as client:
        response = await client.post(path, json=body, headers={"anthropic-version": "2023-06-01"})
    return response.status_code, response.text, requests[0] if requests else None


def grammar_of(request: EngineRequest | None) -> str:
    """The grammar of the whole answer."""
    assert request is not None and request.guide is not None and request.guide.grammar is not None
    return request.guide.grammar.lark


@pytest.mark.parametrize(
    ("path", "body", "field"), ROUTES, ids=[f"{path} {field}" for path, _, field in ROUTES]
)
async def test_the_engine_gets_the_grammar_of_the_schema(path: str, body: dict[str, Any], field: str) -> None:
    _, _, wanted = await sent("/v1/completions", PROMPT | spelled("response_format", SCHEMA))
    status, text, request = await sent(path, body | spelled(field, SCHEMA))
    assert status == 200, text
    assert grammar_of(request) == grammar_of(wanted)


@pytest.mark.parametrize(
    ("path", "body", "field"), ROUTES, ids=[f"{path} {field}" for path, _, field in ROUTES]
)
async def test_a_schema_that_is_none_is_a_400_that_names_the_field(
    path: str, body: dict[str, Any], field: str
) -> None:
    status, text, request = await sent(path, body | spelled(field, BAD))
    assert (status, request) == (400, None)
    assert f"{field}" in text and "objekt" in text


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("field", OPENAI[:4])
async def test_beside_tools_the_refused_one_is_named(field: str, with_tools: bool) -> None:
    """A tool that is refused is the tools' fault, and a constraint is its own field's."""
    function = {"name": "f", "strict": True, "parameters": {"type": "object", "$ref": "http://a/b"}}
    tools = [{"type": "function", "function": function}]
    fine: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    for constraint, given, param in ((SCHEMA, tools, "tools"), (BAD, fine, field)):
        if given is tools and not with_tools:
            continue
        body = CHAT | spelled(field, constraint) | ({"tools": given} if with_tools else {})
        status, text, _ = await sent("/v1/chat/completions", body)
        assert status == 400
        assert json.loads(text)["error"]["param"].split(".")[0] == param
