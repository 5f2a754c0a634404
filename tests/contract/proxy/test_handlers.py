"""LMDeploy's routes that ask or forward: success to the byte, failures with a status."""

from __future__ import annotations

import json

import pytest

from tests.support.servers.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


async def test_status_has_every_node_with_lmdeploys_members_in_order() -> None:
    async with fake_nodes(FakeNode(models=("m1", "m1:ad"))) as (node,), running_proxy() as front:
        assert (await front.client.get("/nodes/status")).content == b"{}"
        await front.add(node, role=1, models=["m1", "m1:ad"])
        answer = await front.client.get("/nodes/status")
        expected = '{"role":1,"models":["m1","m1:ad"],"unfinished":0,"latency":[],"speed":null}'
        assert answer.text == f'{{"{node.url}":{expected}}}'
        await front.chat()
        status = (await front.client.get("/nodes/status")).json()[node.url]
        assert status["unfinished"] == 0
        assert len(status["latency"]) == 1


async def test_each_model_is_listed_once_with_lmdeploys_members() -> None:
    nodes = FakeNode("one", ("a", "b")), FakeNode("two", ("b",))
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        listed = (await front.client.get("/v1/models")).json()
        assert [card["id"] for card in listed["data"]] == ["a", "b"]
        card = listed["data"][0]
        assert list(card) == ["id", "object", "created", "owned_by", "root", "parent", "permission"]
        assert (card["object"], card["owned_by"], card["root"], card["parent"]) == (
            "model",
            "lmdeploy",
            "a",
            None,
        )
        assert card["permission"][0]["id"].startswith("modelperm-")
        assert (await front.client.get("/v1/models")).json() == listed
        assert (await front.client.get("/v1/models/a")).json() == card
        assert (await front.client.get("/v1/models/z")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_request_reaches_the_node_and_its_answer_the_client_as_they_are(path: str) -> None:
    odd = b'{"answer" : 1,\n "spaces":  [ ]}'
    node = FakeNode(answer=sending(reply(odd, x_mine="yes", set_cookie="a=b")))
    async with fake_nodes(node), running_proxy(node) as front:
        body = b'{"model":  "m1", "messages": [],"prompt":"x", "unknown": {"kept": 1e2}}'
        answer = await front.client.post(
            path, content=body, headers={"content-type": "application/json; charset=x"}
        )
        assert (answer.status_code, answer.content) == (200, odd)
        assert answer.headers["x-mine"] == "yes"
        assert answer.headers["x-jan-serve-node"] == f"127.0.0.1:{node.port}"
        assert "set-cookie" not in answer.headers
        sent = node.generations[0]
        assert (sent.path, sent.body, sent.headers["content-type"]) == (
            path,
            body,
            "application/json; charset=x",
        )


async def test_the_nodes_status_is_the_clients() -> None:
    node = FakeNode(answer=sending(reply({"message": "Too long.", "object": "error"}, 400)))
    async with fake_nodes(node), running_proxy(node) as front:
        answer = await front.chat()
        assert (answer.status_code, answer.json()["message"]) == (400, "Too long.")


async def test_an_unknown_model_is_lmdeploys_404() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        answer = await front.chat(model="nope")
        assert answer.status_code == 404
        assert answer.json()["message"] == "The model 'nope' does not exist."


async def test_warm_up_and_collection_without_anything_to_do() -> None:
    async with running_proxy() as front:
        warm = await front.client.post("/distserve/connection_warmup")
        assert (warm.status_code, warm.content) == (200, b'{"SUCCESS":true}')
        freed = await front.client.post("/distserve/gc")
        assert freed.json() == {"SUCCESS": True, "freed": 0}


async def test_wrong_methods_and_unknown_routes_say_so() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        answer = await front.client.get("/nodes/add")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        for path in (
            "/update_weights",
            "/sleep",
            "/abort_request",
            "/models/load",
            "/terminate",
            "/tgi/../sleep",
        ):
            assert (await front.client.post(path, json={})).status_code == 404, path
        assert not node.generations


async def test_health_readiness_and_metrics() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        assert (await front.client.get("/health")).json()["state"] == "degraded"
        assert (await front.client.get("/ready")).status_code == 503
        await front.add(node)
        await front.chat()
        assert (await front.client.get("/health")).json()["state"] == "ready"
        assert (await front.client.get("/ready")).json() == {"ready": True, "reason": None}
        page = (await front.client.get("/metrics")).text
        assert f'jan_serve_node_requests_total{{node="{node.url}"}} 1.0' in page
        assert 'jan_serve_nodes{state="healthy"} 1.0' in page
        details = (await front.client.get("/extras/nodes")).json()
        assert details["strategy"] == "prefix"
        assert details["nodes"][0]["routable"] is True
        assert json.dumps(details)


@pytest.mark.parametrize(
    ("path", "body", "members"),
    [
        ("/v1/messages", {}, {"type", "error", "request_id"}),
        ("/anthropic/v1/messages", {}, {"type", "error", "request_id"}),
        ("/api/generate", {}, {"error"}),
        ("/generate", {"inputs": "x"}, {"error", "error_type"}),
        ("/generate", {"prompt": "x"}, {"message", "type", "code", "param", "object"}),
        ("/v1/responses", {}, {"error"}),
        ("/v2/rerank", {}, {"message"}),
    ],
)
async def test_without_nodes_each_protocol_says_so_in_its_form(
    path: str, body: dict[str, str], members: set[str]
) -> None:
    async with running_proxy() as front:
        answer = await front.client.post(path, json=body)
        assert answer.status_code in (503, 529)
        assert int(answer.headers["retry-after"]) > 0
        assert set(answer.json()) == members


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_a_wrong_key_is_refused_in_the_callers_form(header: str) -> None:
    async with running_proxy(api_keys=("right",)) as front:
        refused = await front.client.post("/v1/messages", json={}, headers={header: "Bearer wrong"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        refused = await front.client.post("/api/chat", json={})
        assert (refused.status_code, set(refused.json())) == (401, {"error"})
        allowed = await front.client.post("/v1/messages", json={}, headers={"x-api-key": "right"})
        assert allowed.status_code == 529


async def test_ollamas_clients_find_their_greeting() -> None:
    async with running_proxy() as front:
        answer = await front.client.get("/", headers={"accept": "*/*"})
        assert (answer.status_code, answer.text) == (200, "Ollama is running")
