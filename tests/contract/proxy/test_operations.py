"""LMDeploy's ten operations: success to the byte, failures with a status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.fleet.node import State
from tests.support.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

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
        await front.until_state(node, State.HEALTHY)
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
        ({"url": "http://127.0.0.1:1", "status": {"speed": 0}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": -5}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"speed": "fast"}}, 422, "status.speed"),
        ({"url": "http://127.0.0.1:1", "status": {"models": "m"}}, 422, "status.models"),
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
