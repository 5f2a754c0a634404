"""Lists of models in the protocol of who asks: from all nodes, each model once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.servers.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


def tagged(name: str, at: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"name": name, "model": name, "modified_at": at, "size": 1, **more}


def node_with(name: str, models: tuple[str, ...], path: str, body: object, status: int = 200) -> FakeNode:
    return FakeNode(name, models, routes={path: sending(reply(body, status))})


async def test_ollamas_list_has_each_model_once_the_newest_first() -> None:
    nodes = (
        node_with("one", ("a",), "/api/tags", {"models": [tagged("a:latest"), tagged("b:latest", size=2)]}),
        node_with("two", ("b",), "/api/tags", {"models": [tagged("b:latest", "2026-02-02T00:00:00Z", size=3)]}),
        FakeNode("other", ("c",), routes={"/api/tags": sending(reply({"detail": "Not Found"}, 404))}),
    )  # fmt: skip
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        answer = await front.client.get("/api/tags")
        assert [(row["name"], row["size"]) for row in answer.json()["models"]] == [
            ("b:latest", 3),
            ("a:latest", 1),
        ]
        assert (await front.client.head("/api/tags")).status_code == 200


async def test_nodes_with_the_same_models_are_not_all_asked_and_one_that_fails_is_replaced() -> None:
    body = {"models": [tagged("m1:latest")]}
    nodes = [node_with(f"n{number}", ("m1",), "/api/tags", body) for number in range(5)]
    nodes[0].routes["/api/tags"] = sending(reply({}, 500))
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        for _ in range(3):
            assert (await front.client.get("/api/tags")).json() == body
        asked = [node.name for node in nodes if node.generations]
        assert asked == ["n0", "n1"]
        assert len(nodes[1].generations) == 1, "the answer is kept for two seconds"


async def test_what_is_in_memory_is_asked_of_all_nodes() -> None:
    rows = [tagged("m1:latest", expires_at=f"2026-01-0{day}T00:00:00Z") for day in (1, 3, 2)]
    nodes = [node_with(f"n{day}", ("m1",), "/api/ps", {"models": [row]}) for day, row in enumerate(rows)]
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        listed = (await front.client.get("/api/ps")).json()["models"]
        assert [row["expires_at"] for row in listed] == ["2026-01-03T00:00:00Z"]


async def test_anthropics_list_is_for_requests_with_its_header_and_has_pages() -> None:
    infos = [{"type": "model", "id": name, "max_input_tokens": 4096} for name in ("a", "b", "c")]
    nodes = (
        node_with("one", ("a", "b"), "/anthropic/v1/models", {"data": infos[:2], "has_more": False}),
        node_with("two", ("b", "c"), "/anthropic/v1/models", {"data": infos[1:], "has_more": False}),
    )
    headers = {"anthropic-version": "2023-06-01"}
    async with fake_nodes(*nodes), running_proxy(*nodes, node_key="secret") as front:
        first = await front.client.get("/v1/models?limit=2", headers=headers)
        assert first.json() == {"data": infos[:2], "has_more": True, "first_id": "a", "last_id": "b"}
        rest = await front.client.get("/v1/models?after_id=b", headers=headers)
        assert (rest.json()["data"], rest.json()["has_more"]) == (infos[2:], False)
        assert (await front.client.get("/v1/models/c", headers=headers)).json() == infos[2]
        missing = await front.client.get("/v1/models/z", headers=headers)
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
        for wrong in ("0", "1001", "-1", "x", "9" * 5000, "²"):
            refused = await front.client.get("/v1/models", params={"limit": wrong}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
            assert "limit" in refused.json()["error"]["message"]
        assert nodes[0].generations[0].headers["authorization"] == "Bearer secret"
        plain = (await front.client.get("/v1/models")).json()
        assert plain["data"][0]["owned_by"] == "lmdeploy"


async def test_lm_studios_list_prefers_the_node_that_has_the_model_loaded() -> None:
    rows = [{"id": "m1", "state": state} for state in ("not-loaded", "loaded")]
    nodes = [
        node_with(row["state"], ("m1",), "/api/v0/models", {"object": "list", "data": [row]}) for row in rows
    ]
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        assert (await front.client.get("/api/v0/models")).json() == {"object": "list", "data": [rows[1]]}
        assert (await front.client.get("/api/v0/models/m1")).json() == rows[1]
        assert (await front.client.get("/api/v0/models/z")).json()["error"]["code"] == "model_not_found"


async def test_lmdeploys_list_is_also_below_its_prefix() -> None:
    async with fake_nodes(FakeNode(models=("a",))) as (node,), running_proxy(node) as front:
        below, root = [
            (await front.client.get(path)).json() for path in ("/lmdeploy/v1/models", "/v1/models")
        ]
        assert below == root


async def test_without_nodes_a_list_is_empty() -> None:
    async with running_proxy() as front:
        assert (await front.client.get("/api/tags")).json() == {"models": []}


NO_LISTS: dict[str, Any] = {
    "html": b"<html>",
    "list": [],
    "text": {"models": "x"},
    "number": {"models": [1]},
    "nameless": {"models": [{}]},
    "long name": {"models": [tagged("x" * 2000)]},
    "line break": {"models": [tagged("a\nb")]},
    "too many": {"models": [tagged("m")] * 10_001},
}


@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS.keys())
async def test_what_is_no_list_of_models_is_a_502_in_the_callers_form(body: Any) -> None:
    node = node_with("odd", ("m1",), "/api/tags", body)
    async with fake_nodes(node), running_proxy(node) as front:
        answer = await front.client.get("/api/tags")
        assert answer.status_code == 502
        assert "no list of models" in answer.json()["error"]


async def test_one_question_serves_all_that_ask_meanwhile_and_outlives_who_leaves() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await may_answer.wait()
        writer.write(reply({"models": [tagged("m1:latest")]}))

    node = FakeNode(routes={"/api/tags": slow})
    async with fake_nodes(node), running_proxy(node) as front:
        leaves, stays = (asyncio.ensure_future(front.client.get("/api/tags")) for _ in range(2))
        async with asyncio.timeout(60):
            await asked.wait()
            leaves.cancel()
            may_answer.set()
            assert len((await stays).json()["models"]) == 1
        assert len(node.generations) == 1


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/api/chat", "m1:latest"),
        ("/api/chat", "nick:latest"),
        ("/v1/chat/completions", "nick"),
        ("/v1/messages", "claude-sonnet-4-5"),
        ("/v1/v1/messages", "nick"),
        ("/anthropic/v1/messages", "nick"),
    ],
)
async def test_a_model_is_found_by_its_other_names(path: str, asked: str) -> None:
    entry = {"id": "m1", "aliases": ["nick", "sonnet", 5, "x\ny"]}
    node = FakeNode(routes={"/v1/models": sending(reply({"data": [entry]}))})
    async with fake_nodes(node, FakeNode("other", ("m2",))) as nodes, running_proxy(*nodes) as front:
        for _ in range(3):
            answer = await front.client.post(path, json={"model": asked, "messages": []})
            assert (answer.status_code, answer.json()["node"]) == (200, "node")
        assert node.generations[0].json()["model"] == asked, "bytes go on unchanged"
        listed = (await front.client.get("/v1/models")).json()["data"]
        assert [card["id"] for card in listed] == ["m1", "m2"]


async def test_a_name_that_no_node_has_is_a_404_in_the_callers_words() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        for path, says in (
            ("/api/chat", {"error": "model 'nope:latest' not found"}),
            ("/v1/chat/completions", {"message": "The model 'nope:latest' does not exist."}),
        ):
            answer = await front.client.post(path, json={"model": "nope:latest", "messages": []})
            assert answer.status_code == 404
            assert answer.json().items() >= says.items()
