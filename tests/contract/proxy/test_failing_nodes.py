"""Nodes that fail: what is tried elsewhere, and what the client learns."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import httpx
import pytest

from jan_serve.fleet.attempts import MAX_REACHED
from jan_serve.fleet.node import NodeState, Role
from tests.support.servers.fake_nodes import (
    EVENT_HEAD,
    FakeNode,
    Received,
    chunk,
    fake_nodes,
    reply,
    running_proxy,
    sending,
)

pytestmark = pytest.mark.anyio


EVENTS = [b'data: {"n":1}\n\n', b"event: x\ndata: a\ndata: b\n\n", b": ping\n\n", b"data: [DONE]\n\n"]


async def test_a_dead_node_costs_nothing_but_a_second_attempt() -> None:
    nodes = FakeNode("dead"), FakeNode("alive")
    async with fake_nodes(*nodes), running_proxy(*nodes, strategy="min_expected_latency") as front:
        await nodes[0].stop()
        answers = [await front.chat() for _ in range(20)]
        assert {answer.json()["node"] for answer in answers} == {"alive"}
        assert 1 <= front.proxy.forwarder.counts.retries <= 5


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (b"", 200),
        (b"HTTP/1.1 200 OK\r\ncontent-le", 200),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", 200),
        (reply({}, 502), 200),
        (reply({}, 503, retry_after="9"), 200),
        (reply({}, 429), 200),
        (reply({}, 500), 500),
        (reply({}, 504), 504),
        (reply({}, 400), 400),
        (b"HTTP/1.1 999 X\r\n\r\n", 502),
        (b"garbage\r\n\r\n", 502),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", 502),
    ],
)
async def test_what_is_tried_elsewhere_and_what_is_not(broken: bytes, status: int) -> None:
    """A request goes elsewhere when nothing of an answer came, or the node says that it cannot now."""
    failing, works = FakeNode("failing", answer=sending(broken, close=True)), FakeNode("works")
    async with fake_nodes(failing, works), running_proxy(failing) as front:
        keys = [{"role": "user", "content": "x" * 3000}]
        first = await front.chat(messages=keys)
        await front.add(works)
        failing_node = front.proxy.fleet.find(failing.url)
        assert failing_node is not None
        failing_node.breaker.reset()
        working = front.proxy.fleet.find(works.url)
        assert working is not None
        working.others = 1000
        answer = await front.chat(messages=keys)
        assert answer.status_code == status, answer.text
        assert len(failing.generations) >= 2
        assert first.status_code in (status, 502, 503, 429)


async def test_requests_that_a_node_refuses_at_its_end_are_answered_by_another_one() -> None:
    """As many as there are: the share of retries is for nodes that are overloaded."""
    n = 16
    refused = asyncio.Event()

    async def refuse(request: Received, writer: asyncio.StreamWriter) -> None:
        await refused.wait()
        writer.write(reply({"status": "draining"}, 503, connection="close"))

    ends, works = FakeNode("ends", answer=refuse), FakeNode("works")
    async with fake_nodes(ends, works), running_proxy(ends) as front, asyncio.TaskGroup() as group:
        asked = [group.create_task(front.chat()) for _ in range(n)]
        while len(ends.generations) < n:
            await asyncio.sleep(0.001)
        await front.add(works)
        ends.health = (503, {"status": "draining"})
        refused.set()
        answers = [await each for each in asked]
        assert [answer.json()["node"] for answer in answers] == ["works"] * n
        node = front.proxy.fleet.find(ends.url)
        assert node is not None
        while node.state is not NodeState.DRAINING:  # at once, long before its next check is due
            await asyncio.sleep(0.001)


async def test_the_only_nodes_refusal_reaches_the_client_with_a_bounded_wait() -> None:
    busy = FakeNode(answer=sending(reply({"message": "busy"}, 503, retry_after="1000000000")))
    async with fake_nodes(busy), running_proxy(busy) as front:
        answer = await front.chat()
        assert (answer.status_code, answer.json()) == (503, {"message": "busy"})
        assert answer.headers["retry-after"] == "3600"


async def test_when_no_node_can_be_reached_the_client_learns_which() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        await node.stop()
        answer = await front.chat()
        assert answer.status_code == 502
        assert f"127.0.0.1:{node.port}" in answer.json()["message"]


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunks", "length"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat", "/generate"])
async def test_a_node_that_closes_inside_its_answer_is_one_line_of_the_log(
    media_type: str, is_chunked: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    framing = "transfer-encoding: chunked" if is_chunked else "content-length: 1000000"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\n{framing}\r\n\r\n".encode()
    part = b'data: {"n":1}\n\n'
    broken = FakeNode(answer=sending(head + (chunk(part) if is_chunked else part), close=True))
    async with fake_nodes(broken), running_proxy(broken) as front:
        caplog.clear()
        body: dict[str, Any] = {"model": "m1", "messages": [], "prompt": "x", "stream": True, "max_tokens": 1}
        try:
            answer = await front.client.post(path, json=body)
        except httpx.RemoteProtocolError:
            pass
        else:
            assert is_chunked
            assert answer.status_code == 200
        await front.client.get("/health")
    lines = [record for record in caplog.records if record.levelno > logging.INFO]
    assert [record.name for record in lines] == ["jan_serve.proxy.forwarding"]
    assert "closed the connection within its answer" in lines[0].getMessage()
    assert not any(record.exc_info for record in caplog.records)


async def test_a_node_that_never_answers_is_a_504() -> None:
    node = FakeNode(answer=silent)
    async with fake_nodes(node), running_proxy(node, first_byte_timeout_s=0.2) as front:
        answer = await front.chat()
        assert (answer.status_code, answer.json()["code"]) == (504, 504)


async def silent(request: Received, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_leaves_a_node_without_a_sign_of_life_for_one_that_can(stream: bool) -> None:
    hole, works = FakeNode("hole"), FakeNode("works")
    async with fake_nodes(hole, works), running_proxy(hole, patience_s=0.3) as front:
        messages = [{"role": "user", "content": "x" * 3000}]
        assert (await front.chat(messages=messages, stream=stream)).json()["node"] == "hole"
        hole.answer = silent
        await front.add(works)
        answer = await front.chat(messages=messages, stream=stream)
        assert (answer.status_code, answer.json()["node"]) == (200, "works")
        async with asyncio.timeout(60):
            await hole.left.wait()
        assert len(hole.generations) == 2
        assert front.proxy.forwarder.counts.retries == 1
        node = front.proxy.fleet.find(hole.url)
        assert node is not None
        assert node.failures == 1


async def test_a_whole_answer_is_waited_for_while_its_node_says_that_it_works_on_it() -> None:
    """Beyond the limit for the first byte, which is the answer's end."""
    now, looks, ends = 0.0, 0, asyncio.Event()

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        await ends.wait()
        writer.write(reply({"node": "slow"}))

    nodes = FakeNode("slow", answer=slow), FakeNode("works")
    limits = {"patience_s": 0.01, "first_byte_timeout_s": 0.02}
    async with fake_nodes(*nodes), running_proxy(nodes[0], clock=clock, **limits) as front:
        asking = asyncio.create_task(front.chat())
        node = front.proxy.fleet.find(nodes[0].url)
        assert node is not None
        async with asyncio.timeout(60):
            while not nodes[0].generations:
                await asyncio.sleep(0.001)
            await front.add(nodes[1])
            for later in (1000.0, 2000.0):
                node.note_open(1, 1, later)
                now, before = later, looks
                while looks < before + 5:
                    await asyncio.sleep(0.001)
        ends.set()
        assert (await asking).json()["node"] == "slow"
        assert not nodes[1].generations


async def test_a_request_finds_the_only_living_one_of_many_nodes() -> None:
    """Nodes where nobody takes the connection had no request: they do not count as attempts."""
    dead = [FakeNode(f"dead {number}") for number in range(8)]
    alive = FakeNode("alive")
    async with fake_nodes(*dead, alive), running_proxy(*dead, alive) as front:
        for node in dead:
            await node.stop()
        assert [(await front.chat(f"Hi {number}")).json()["node"] for number in range(5)] == ["alive"] * 5
        assert front.proxy.forwarder.counts.exhausted == 0


async def test_a_port_that_takes_connections_and_nothing_else_is_a_504() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        async with running_proxy(first_byte_timeout_s=0.2) as front:
            url = f"http://127.0.0.1:{hole.getsockname()[1]}"
            node = front.proxy.fleet.add(url, Role.HYBRID, ("m1",), None, 0.0)
            front.proxy.fleet.set_state(node, NodeState.HEALTHY)
            assert (await front.chat()).status_code == 504


async def test_a_stream_that_breaks_between_events_ends_with_an_error_event() -> None:
    node = FakeNode(answer=sending(EVENT_HEAD + chunk(EVENTS[0]), close=True))
    async with fake_nodes(node), running_proxy(node) as front:
        answer = await front.chat(stream=True)
        first, second = answer.text.split("\n\n")[:2]
        assert first + "\n\n" == EVENTS[0].decode()
        assert '"code":502' in second
        assert "[DONE]" not in answer.text


STREAMS = [
    ("/v1/chat/completions", "text/event-stream", b"data: 1\n\n", 'data: {"error":{"message":"'),
    ("/v1/messages", "text/event-stream", b"event: x\ndata: 1\n\n", 'event: error\ndata: {"type":"error",'),
    ("/api/chat", "application/x-ndjson", b"{}\n", '{"error":"'),
    ("/generate_stream", "text/event-stream", b"data:1\n\n", 'data: {"error":"'),
]
"""Path, type and part of a stream, and how an error in it begins."""


@pytest.mark.parametrize(("path", "media_type", "part", "ending"), STREAMS)
async def test_a_stream_that_breaks_ends_in_its_protocols_words(
    path: str, media_type: str, part: bytes, ending: str
) -> None:
    head = EVENT_HEAD.replace(b"text/event-stream", media_type.encode())
    node = FakeNode(answer=sending(head + chunk(part), close=True))
    async with fake_nodes(node), running_proxy(node) as front:
        body: dict[str, Any] = {"model": "m1", "messages": [], "inputs": "x", "stream": True}
        answer = await front.client.post(path, json=body)
        assert answer.text.startswith(part.decode() + ending)
        assert f"127.0.0.1:{node.port}" in answer.text


@pytest.mark.parametrize(("path", "media_type", "part", "ending"), STREAMS)
@pytest.mark.parametrize("is_begun", [False, True])
async def test_what_runs_at_the_end_of_the_proxy_ends_in_its_protocols_words(
    path: str, media_type: str, part: bytes, ending: str, is_begun: bool
) -> None:
    async def work(request: Received, writer: asyncio.StreamWriter) -> None:
        if is_begun:
            writer.write(EVENT_HEAD.replace(b"text/event-stream", media_type.encode()) + chunk(part))
        else:
            front.stop()
        await node.left.wait()

    node = FakeNode(answer=work)
    body: dict[str, Any] = {"model": "m1", "messages": [], "inputs": "x", "stream": True}
    async with fake_nodes(node), running_proxy(node) as front:
        async with front.client.stream("POST", path, json=body) as answer:
            text = ""
            async for piece in answer.aiter_text():
                if not text and is_begun:
                    front.stop()
                text += piece
        assert "The server is shutting down." in text
        assert answer.status_code == (200 if is_begun else 529 if path == "/v1/messages" else 503)
        assert text.startswith(part.decode() + ending) or not is_begun


@pytest.mark.parametrize(
    "part", [EVENT_HEAD + chunk(b'data: {"n"'), b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n{"]
)
async def test_any_other_answer_that_breaks_is_cut(part: bytes) -> None:
    """A part must not pass for the whole."""
    async with (
        fake_nodes(FakeNode(answer=sending(part, close=True))) as (node,),
        running_proxy(node) as front,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await front.chat()
        assert front.proxy.forwarder.counts.broken == 1


async def test_a_reused_connection_that_the_node_closed_is_no_failure() -> None:
    node = FakeNode(answer=sending(reply({"node": "node"})))
    async with fake_nodes(node), running_proxy(node) as front:
        await front.chat()

        async def closes(request: Received, writer: asyncio.StreamWriter) -> None:
            node.answer = sending(reply({"node": "again"}))
            writer.transport.abort()

        node.answer = closes
        answer = await front.chat()
        assert answer.json()["node"] == "again"
        found = front.proxy.fleet.find(node.url)
        assert found is not None and found.failures == 0


async def test_a_request_that_kills_its_nodes_kills_few() -> None:
    nodes = [FakeNode(f"node {number}") for number in range(MAX_REACHED + 2)]
    async with fake_nodes(*nodes), running_proxy(*nodes, strategy="min_expected_latency") as front:
        # Adding a node leaves an idle connection, which the request is sent over.
        for node in nodes:

            async def dies(request: Received, writer: asyncio.StreamWriter, node: FakeNode = node) -> None:
                node.kill()

            node.answer = dies
        assert (await front.chat()).status_code == 502
        assert sum(len(node.generations) for node in nodes) == MAX_REACHED


async def test_fast_failures_open_the_breaker_and_all_open_is_tried_all_the_same() -> None:
    nodes = FakeNode("bad", answer=sending(reply({}, 500))), FakeNode("good")
    stopped: dict[str, Any] = {"clock": lambda: 100.0, "strategy": "min_expected_latency"}
    async with fake_nodes(*nodes), running_proxy(*nodes, **stopped) as front:
        statuses = [(await front.chat()).status_code for _ in range(40)]
        assert statuses.count(500) == 3
        await nodes[1].stop()
        front.proxy.fleet.remove(nodes[1].url)
        assert (await front.chat()).status_code == 500
