"""Adding, renewing, removing and ending nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jan_serve.fleet.node import Node, NodeState, Role
from jan_serve.proxy.node_registry import MAX_SPEED
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


async def test_a_node_without_models_is_asked_for_them() -> None:
    async with fake_nodes(FakeNode(models=("a", "b", "a"))) as (node,), running_proxy() as front:
        answer = await front.client.post("/nodes/add", json={"url": node.url + "/"})
        assert (answer.status_code, answer.content) == (200, b'"Added successfully"')
        assert (await front.client.get("/nodes/status")).json()[node.url]["models"] == ["a", "b"]


async def test_adding_again_renews_and_keeps_the_counts() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        await front.add(node)
        await front.chat()
        asked = len(node.calls)
        await front.add(node)
        assert len(node.calls) == asked
        assert len((await front.client.get("/nodes/status")).json()[node.url]["latency"]) == 1


async def test_a_node_that_names_models_may_listen_later() -> None:
    """LMDeploy's servers register before they listen."""
    node = FakeNode()
    async with fake_nodes(node), running_proxy() as front:
        await node.stop()
        await front.add(node, models=["m1"], role=1)
        refused = await front.chat()
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        await node.start()
        await front.until_state(node, NodeState.HEALTHY)
        assert (await front.chat()).json()["node"] == "node"


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({}, 422, "url: is missing"),
        ([], 422, "must be a JSON object"),
        ({"url": 5}, 422, "must be a text"),
        ({"url": "127.0.0.1:1"}, 422, "http://"),
        ({"url": "file:///etc/passwd"}, 422, "http://"),
        ({"url": "ftp://x"}, 422, "http://"),
        ({"url": "http://u:p@127.0.0.1"}, 422, "user"),
        ({"url": "http://127.0.0.1:0"}, 422, "port"),
        ({"url": "http://127.0.0.1:70000"}, 422, "valid"),
        ({"url": "http://127.0.0.1/?a"}, 422, "?"),
        ({"url": "http://127.0.0.1/#a"}, 422, "#"),
        ({"url": "http://" + "a" * 2100}, 422, "2048"),
        ({"url": "http://münchen"}, 422, "xn--"),
        ({"url": "http://::1:80"}, 422, "url"),
        ({"url": "http://169.254.169.254"}, 403, "--node-network"),
        ({"url": "http://8.8.8.8"}, 403, "--node-network"),
        ({"url": "http://[::ffff:169.254.169.254]"}, 403, "--node-network"),
        ({"url": "http://127.0.0.1:1"}, 502, "refused"),
        ({"url": "http://no-such-name.invalid"}, 502, "unknown name"),
        ({"url": "http://127.0.0.1:1", "status": 5}, 422, "status"),
        ({"url": "http://127.0.0.1:1", "status": {"role": 0}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"role": 4}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"role": "Hybrid"}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"role": True}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"role": None}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"role": [1]}}, 422, "status.role"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": True}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": 2 * MAX_SPEED}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": 0}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": -5}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": "fast"}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"models": "m"}}, 422, "status.models"),
        ({"url": "http://127.0.0.1:1", "status": {"models": [1]}}, 422, "status.models"),
        ({"url": "http://127.0.0.1:1", "status": {"models": [""]}}, 422, "status.models"),
        ({"url": "http://127.0.0.1:1", "status": {"models": ["m"] * 10_001}}, 422, "status.models"),
        ({"url": "http://127.0.0.1:1", "status": {"models": ["m" * 10_000]}}, 422, "1024"),
        ({"url": "http://127.0.0.1:1", "status": {"models": ["m\r\nx: y"]}}, 422, "printable"),
    ],
)
async def test_what_cannot_be_added_is_refused_with_the_reason(content: Any, status: int, words: str) -> None:
    async with running_proxy() as front:
        answer = await front.client.post("/nodes/add", json=content)
        assert answer.status_code == status, answer.text
        body = answer.json()
        assert words in body["message"]
        assert body["object"] == "error"
        assert body["code"] == status
        if status == 422:
            assert body["detail"][0]["loc"][0] == "body"
            assert "input" not in body["detail"][0]
        assert not len(front.proxy.fleet)


@pytest.mark.parametrize("number", ["1e400", "NaN", "Infinity"])
async def test_numbers_that_are_none_are_refused(number: str) -> None:
    async with running_proxy() as front:
        text = f'{{"url": "http://127.0.0.1:1", "status": {{"speed": {number}}}}}'
        answer = await front.client.post(
            "/nodes/add", content=text, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 422)


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (reply(b"<html>"), "not a list of models"),
        (reply({"data": {}}), "not a list of models"),
        (reply(b'{"data": [{"id": NaN}]}'), "not a list of models"),
        (reply({"data": [{"id": "m" * 2000}]}), "1024"),
        (reply({"data": [{"id": None}]}), "1024"),
        (reply({"data": [{"id": "m"}] * 10_001}), "more than 10000 models"),
        (reply(b'{"data": [' + b" " * (9 << 20) + b"]}"), "more than 8388608 bytes"),
        (reply({}, 301, location="http://127.0.0.1:1/"), "status 301"),
        (reply({}, 401), "--node-key"),
        (reply({"data": []}, 500), "status 500"),
        (b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n", "status 999"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", "within its answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n", "200 header fields"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000, "65536 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + reply({"data": [{"id": "m1"}]}), None),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3 + reply({"data": [{"id": "m1"}]}), None),
    ],
)
async def test_what_a_node_lists_is_not_trusted(listed: bytes, words: str | None) -> None:
    node = FakeNode(routes={"/v1/models": sending(listed, close=True)})
    async with fake_nodes(node), running_proxy() as front:
        answer = await front.client.post("/nodes/add", json={"url": node.url})
        assert answer.status_code == (502 if words else 200), answer.text
        assert words is None or words in answer.json()["message"]


async def test_models_that_the_node_lacks_are_refused() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        answer = await front.client.post(
            "/nodes/add", json={"url": node.url, "status": {"models": ["m1", "m2"]}}
        )
        assert answer.status_code == 400
        assert "'m2'" in answer.json()["message"]


async def test_a_speed_of_minus_one_is_unknown() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        await front.add(node, speed=-1)
        assert (await front.client.get("/nodes/status")).json()[node.url]["speed"] is None
        await front.add(node, speed=30, latency=[1] * 100_000, unfinished=-7)
        status = (await front.client.get("/nodes/status")).json()[node.url]
        assert (status["speed"], status["latency"], status["unfinished"]) == (30, [], 0)


async def test_a_million_latencies_are_more_than_a_body_may_have() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(max_body_bytes=1 << 20) as front:
        body = {"url": node.url, "status": {"latency": [0.001] * 1_000_000}}
        assert (await front.client.post("/nodes/add", json=body)).status_code == 413
        assert not len(front.proxy.fleet)


@pytest.mark.parametrize("form", ["body", "query"])
async def test_remove_deletes_and_is_repeatable(form: str) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        await front.add(node)
        for _ in range(2):
            if form == "body":
                answer = await front.client.post("/nodes/remove", json={"url": node.url})
            else:
                answer = await front.client.post("/nodes/remove", params={"node_url": node.url})
            assert (answer.status_code, answer.content) == (200, b'"Deleted successfully"')
        assert (await front.client.get("/nodes/status")).json() == {}
        assert (await front.chat()).status_code == 404


async def test_terminate_ends_the_node_and_lists_it_until_it_is_gone() -> None:
    ended = FakeNode(routes={"/terminate": sending(reply(b""))})
    async with fake_nodes(ended), running_proxy(ended) as front:
        answer = await front.client.post("/nodes/terminate", json={"url": ended.url})
        assert (answer.status_code, answer.content) == (200, b'"Terminated successfully"')
        assert (await front.chat()).status_code == 503
        assert ended.url in (await front.client.get("/nodes/status")).json()
        await ended.stop()
        node = front.proxy.fleet.find(ended.url)
        assert node is not None
        while len(front.proxy.fleet):
            front.proxy.probes.soon(node)
            await front.client.get("/health")
        assert (await front.client.post("/nodes/terminate", json={"url": ended.url})).status_code == 404


async def test_a_node_that_refuses_to_end_stays() -> None:
    message = {"message": "Ending the server is not allowed.", "object": "error"}
    stays = FakeNode(routes={"/terminate": sending(reply(message, 400))})
    async with fake_nodes(stays), running_proxy(stays) as front:
        answer = await front.client.post("/nodes/terminate", json={"url": stays.url})
        assert answer.status_code == 502
        assert "not allowed" in answer.json()["message"]
        assert (await front.chat()).status_code == 200
        everything = await front.client.get("/nodes/terminate_all")
        assert everything.status_code == 502
        assert "1 nodes were not ended" in everything.json()["message"]


async def test_a_node_that_could_not_be_asked_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise MemoryError

    node = FakeNode(routes={"/terminate": sending(reply(b""))})
    async with fake_nodes(node), running_proxy(node) as front:
        with monkeypatch.context() as patch:
            patch.setattr(front.proxy.client, "fetch_json", fail)
            assert (await front.client.post("/nodes/terminate", json={"url": node.url})).status_code == 503
        assert (await front.chat()).status_code == 200


async def test_terminate_all_is_not_for_web_pages() -> None:
    node = FakeNode(routes={"/terminate": sending(reply(b""))})
    async with fake_nodes(node), running_proxy() as front:
        everything = await front.client.get("/nodes/terminate_all")
        assert everything.content == b'"All nodes terminated successfully"'
        await front.add(node)
        for headers in ({"origin": front.url}, {"sec-fetch-site": "same-site"}):
            assert (await front.client.get("/nodes/terminate_all", headers=headers)).status_code == 403
        assert (await front.client.get("/nodes/terminate_all")).status_code == 200
        assert [call.path for call in node.generations] == ["/terminate"]


async def test_the_number_of_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.proxy.node_registry.MAX_NODES", 1)
    async with fake_nodes(FakeNode(), FakeNode()) as (first, second), running_proxy(first) as front:
        refused = await front.client.post("/nodes/add", json={"url": second.url})
        assert refused.status_code == 429
        await front.add(first)


async def test_a_linked_node_keeps_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        await front.add(node, role=2)

        def linked(node: Node) -> bool:
            return True

        monkeypatch.setattr(front.proxy.links, "has", linked)
        refused = await front.client.post("/nodes/add", json={"url": node.url, "status": {"role": 3}})
        assert refused.status_code == 409
        monkeypatch.undo()
        await front.add(node, role=3)
        found = front.proxy.fleet.find(node.url)
        assert found is not None and found.role is Role.DECODE


async def test_adding_and_removing_at_once_leaves_one_node_or_none() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        for _ in range(10):
            await asyncio.gather(
                *(front.client.post("/nodes/add", json={"url": node.url}) for _ in range(3)),
                *(front.client.post("/nodes/remove", json={"url": node.url}) for _ in range(3)),
            )
            assert len(front.proxy.fleet) <= 1
        await front.add(node)
        assert (await front.chat()).status_code == 200
