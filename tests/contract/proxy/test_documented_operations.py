"""The ten operations of LMDeploy's proxy (0.12.1) with every form of request that its document allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.servers.fake_nodes import FakeNode, RunningProxy, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio

OPERATIONS: Final = {
    "GET /nodes/status": None,
    "POST /nodes/add": b'"Added successfully"',
    "POST /nodes/remove": b'"Deleted successfully"',
    "POST /nodes/terminate": b'"Terminated successfully"',
    "GET /nodes/terminate_all": b'"All nodes terminated successfully"',
    "GET /v1/models": None,
    "POST /v1/chat/completions": None,
    "POST /v1/completions": None,
    "POST /distserve/connection_warmup": b'{"SUCCESS":true}',
    "POST /distserve/gc": None,
}
"""The body of success, where it is always the same."""
STATUSES: Final[list[Any]] = [
    None,
    {},
    {"role": 1},
    {"role": 2},
    {"role": 3},
    {"models": None},
    {"models": []},
    {"models": ["m1"]},
    {"speed": None},
    {"speed": 1},
    {"unfinished": 1},
    {"unfinished": -1},
    {"latency": []},
    {"latency": [{}, "x", 1.5, None, [1]]},
    {"latency": [{}], "models": ["m1"], "role": 1, "speed": 1, "unfinished": 1},
    {"later": True},
]
FIELDS: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "lmdeploy" / "api.json").read_text(encoding="utf-8")
)
EXAMPLES: Final[dict[str, Any]] = {
    "null": None,
    "boolean": True,
    "integer": 1,
    "number": 0.5,
    "string": "m1",
    "array": [],
    "object": {},
}
REFUSED: Final = frozenset({"migration_request", "with_cache", "preserve_cache"})
"""These name a state at another node, which is for the proxy to do."""


def ending() -> FakeNode:
    return FakeNode(routes={"/terminate": sending(reply(b""))})


async def call(front: RunningProxy, operation: str, node: FakeNode, status: Any = ...) -> Any:
    method, path = operation.split()
    body: dict[str, Any] = {"model": "m1", "messages": [], "prompt": "x"}
    if path.startswith("/nodes/"):
        body = {"url": node.url} if status is ... else {"url": node.url, "status": status}
    return await front.client.request(method, path, json=body if method == "POST" else None)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_success_is_200_with_lmdeploys_body(operation: str) -> None:
    async with fake_nodes(ending()) as (node,), running_proxy(node) as front:
        answer = await call(front, operation, node)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        expected = OPERATIONS[operation]
        assert expected is None or answer.content == expected


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_another_method_is_a_405(operation: str) -> None:
    method, path = operation.split()
    async with running_proxy() as front:
        answer = await front.client.request("GET" if method == "POST" else "POST", path)
        assert answer.status_code == 405
        assert answer.headers["allow"]


@pytest.mark.parametrize("operation", ["POST /nodes/add", "POST /nodes/remove", "POST /nodes/terminate"])
@pytest.mark.parametrize("status", STATUSES)
async def test_every_documented_status_is_taken(operation: str, status: Any) -> None:
    async with fake_nodes(ending()) as (node,), running_proxy(node) as front:
        answer = await call(front, operation, node, status)
        assert (answer.status_code, answer.content) == (200, OPERATIONS[operation]), answer.text


@pytest.mark.parametrize("operation", ["POST /nodes/add", "POST /nodes/remove", "POST /nodes/terminate"])
@pytest.mark.parametrize("body", [{}, {"url": None}, {"url": "string"}, {"url": 5}])
async def test_a_wrong_body_has_the_documented_form_of_an_error(operation: str, body: dict[str, Any]) -> None:
    async with running_proxy() as front:
        answer = await front.client.post(operation.split()[1], json=body)
        assert answer.status_code == 422
        for problem in answer.json()["detail"]:
            assert isinstance(problem["msg"], str) and isinstance(problem["type"], str)
            assert problem["loc"] == ["body", "url"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_every_documented_field_reaches_the_node_as_it_is(path: str) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        for name, field in FIELDS[f"POST {path}"].items():
            values = [EXAMPLES[kind] for kind in field["types"]]
            values += [field["default"]] if "default" in field else []
            for value in values:
                if name in REFUSED and value:
                    continue
                body = json.dumps({"model": "m1", "messages": [], "prompt": "x"} | {name: value}).encode()
                headers = {"content-type": "application/json"}
                answer = await front.client.post(path, content=body, headers=headers)
                assert answer.status_code == 200, (name, value, answer.text)
                assert node.generations[-1].body == body
