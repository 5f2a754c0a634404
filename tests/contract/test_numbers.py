"""Numbers that no machine word holds, in every numeric field of every documented call: none is a failure of ours.

Over worker processes that read every request from a real pipe, and a renderer whose requests crossed one too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.documented import document
from tests.support.servers.managed import add_model, managed_app

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

NUMBERS: Final = (10**400, 10**30, -(10**30), 2**63, 2**64, 1e308)
MODEL: Final = "thinks-infill"
BIG: Final = 10**30
MESSAGES: Final = [{"role": "user", "content": "Hi"}]
BODIES: Final[dict[str, Any]] = {
    "messages": MESSAGES,
    "prompt": "Hi",
    "inputs": "Hi",
    "input": "Hi",
    "query": "Hi",
    "model": MODEL,
    "max_tokens": 2,
    "parameters": {"max_new_tokens": 2},
    "tokens": [72],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "instances": [{"messages": MESSAGES}],
}


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return document()["components"]["schemas"][name] if name else schema


def _paths(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a value of the schema may hold a number, as far as members of objects go."""
    schema = _resolved(schema)
    if schema.get("type") in ("integer", "number"):
        yield path
    for form in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _paths(form, path)
    if len(path) < 3:
        for name, member in schema.get("properties", {}).items():
            yield from _paths(member, (*path, name))


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema)
    members = schema.get("properties", {}).keys()
    wanted = {
        *schema.get("required", ()),
        "model",
        "max_tokens",
        "messages",
        "prompt",
        "thinking",
        "input",
    } & members
    body = {name: BODIES[name] for name in wanted if name in BODIES}
    if "input" in members:
        body.pop("prompt", None)
    return body or {"inputs": "Hi"}


def _with(body: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    name, rest = path[0], path[1:]
    return {**body, name: _with(body.get(name) or {}, rest, value) if rest else value}


def _calls() -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    for route, methods in document()["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            continue
        forms = _resolved(schema).get("anyOf") or _resolved(schema).get("oneOf") or [schema]
        for form in forms:
            for path in dict.fromkeys(_paths(form)):
                if path:
                    yield route, _body(form), path


async def _post(client: httpx.AsyncClient, route: str, body: object) -> httpx.Response:
    return await client.post(route, content=json.dumps(body), headers={"content-type": "application/json"})


# A request that is refused for something else shows nothing: the fake engine embeds and scores for nobody.
NEVER_SERVED: Final = {
    "/pooling",
    "/lmdeploy/pooling",
    "/lmdeploy/v1/embeddings",
    "/rerank",
    "/reranking",
    "/v1/rerank",
    "/v1/reranking",
    "/v2/rerank",
    "/v1/decide",
    "/v1/batches",  # of a file that is not there
}


async def test_no_number_in_a_documented_field_is_a_failure(tmp_path: Path) -> None:
    add_model(tmp_path, MODEL)
    failed: list[object] = []
    served: set[str] = set()
    refused: dict[str, str] = {}
    calls = list(_calls())
    async with managed_app(tmp_path) as managed:
        for route, body, path in calls:
            for value in NUMBERS:
                answer = await _post(managed.client, route, _with(body, path, value))
                # The latter: a field without a range, that only the pipe has refused.
                if answer.status_code >= 500 or "worker pipe" in answer.text:
                    failed.append((route, path, value, answer.status_code, answer.text[:200]))
                if answer.status_code == 200:
                    served.add(route)
                else:
                    refused[route] = answer.text[:300]
    assert failed == [], "\n".join(map(str, failed))
    assert len(calls) > 250
    unseen = {
        route: refused[route] for route, _, _ in calls if route not in served and route not in NEVER_SERVED
    }
    assert unseen == {}, (
        "no call was served: its required fields are in BODIES, or `parse` cuts its numbers to MAX_INT"
    )


TOOL: Final = {"name": "f", "parameters": {"type": "object", "properties": {"n": {"const": BIG}}}}
LARGE: Final = {
    "tools": {"tools": [{"type": "function", "function": TOOL}]},
    "template": {"chat_template_kwargs": {"number": BIG, "deep": [{"a": -BIG}]}},
    "documents": {"documents": [{"text": "a", "number": BIG}]},
    "budget": {"reasoning_budget": 1e30},
}


@pytest.mark.parametrize("fields", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize(
    "route",
    [
        "/v1/chat/completions",
        "/apply-template",
        "/tgi/v1/chat/completions",
        "/lmdeploy/v1/chat/completions",
        "/v1/responses",
    ],
)
async def test_integers_of_any_size_reach_the_template_as_they_are(
    tmp_path: Path, route: str, fields: dict[str, Any]
) -> None:
    add_model(tmp_path, MODEL)
    body: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "input": "Hi", "max_tokens": 2} | fields
    if route == "/v1/responses" and "tools" in fields:
        body["tools"] = [{"type": "function", **TOOL}]
    async with managed_app(tmp_path) as managed:
        answer = await _post(managed.client, route, body)
        assert answer.status_code == 200 or answer.json()["error_type"] == "tool_error", answer.text
        if route == "/apply-template" and "reasoning_budget" not in fields:
            assert str(BIG) in answer.json()["prompt"]
