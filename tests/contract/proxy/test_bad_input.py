"""Requests that bend HTTP, and nodes whose answers stop or whose clocks do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jan_serve.fleet.assignment import Assignment
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

BODY = b'{"model": "m1", "prompt": "x"}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
EVENT = b'data: {"n":1}\n\n'
WHOLE = reply({"text": "all of it"})
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


async def exchange(url: str, sent: bytes) -> bytes:
    """All that comes until the proxy closes, after these bytes and no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def statuses(answers: bytes) -> list[int]:
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


async def test_a_request_that_names_no_model_goes_to_any_node() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        answer = await front.client.post("/v1/chat/completions", json={"messages": []})
        assert (answer.status_code, answer.json()["node"]) == (200, "node")


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"transfer-encoding: xchunked\r\n\r\n",
        b"transfer-encoding: chunked, identity\r\n\r\n",
        b"transfer-encoding : chunked\r\n\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"content-length: +5\r\n\r\n",
        b"content-length: -5\r\n\r\n",
    ],
)
async def test_a_body_whose_length_is_ambiguous_reaches_no_node(framing: bytes) -> None:
    """What one reader takes for the body would be another request for the next."""
    smuggled = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node, connect_timeout_s=30.0) as front:
        answers = await exchange(front.url, HEAD + framing + b"0\r\n\r\n" + smuggled)
        assert 200 not in statuses(answers)
        assert not node.generations


async def test_chunks_of_a_client_reach_the_node_as_one_body_of_known_length() -> None:
    sent = HEAD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    sent += b"".join(map(chunk, (BODY[:7], BODY[7:]))) + b"0\r\n\r\n"
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        assert statuses(await exchange(front.url, sent)) == [200]
        [call] = node.generations
        assert call.body == BODY
        assert "transfer-encoding" not in call.headers


async def test_a_client_that_waits_for_leave_gets_it_and_the_node_is_not_asked_for_it() -> None:
    sent = (
        HEAD + b"expect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
    )
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        assert statuses(await exchange(front.url, sent)) == [100, 200]
        assert "expect" not in node.generations[0].headers


async def test_requests_behind_each_other_are_answered_in_their_order() -> None:
    async def echo(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(request.json()["prompt"]))

    bodies = [json.dumps({"model": "m1", "prompt": f"number {number}"}).encode() for number in range(5)]
    sent = b"".join(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    async with fake_nodes(FakeNode(answer=echo)) as (node,), running_proxy(node) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(front.url.rsplit(":", 1)[1]))
        writer.write(sent)
        async with asyncio.timeout(60):
            for number in range(5):
                await reader.readuntil(b"\r\n\r\n")
                expected = f'"number {number}"'.encode()
                assert await reader.readexactly(len(expected)) == expected
        writer.close()


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "GET", "PUT", "DELETE", "TRACE"])
async def test_other_methods_reach_no_node(method: str) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        answer = await front.client.request(method, "/v1/chat/completions")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert not node.generations


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", EVENT_HEAD])
async def test_a_node_that_is_silent_after_its_head_is_a_504(head: bytes) -> None:
    async def stalls(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await asyncio.Event().wait()

    async with (
        fake_nodes(FakeNode(answer=stalls)) as (node,),
        running_proxy(node, first_byte_timeout_s=0.1) as front,
    ):
        assert (await front.chat()).status_code == 504


async def test_a_stream_that_stops_for_too_long_ends_with_an_error_event() -> None:
    async def stalls(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENT_HEAD + chunk(EVENT))
        await asyncio.Event().wait()

    async with (
        fake_nodes(FakeNode(answer=stalls)) as (node,),
        running_proxy(node, read_timeout_s=0.1) as front,
    ):
        answer = await front.chat(stream=True)
        first, second = answer.content.split(b"\n\n")[:2]
        assert first + b"\n\n" == EVENT
        assert b"sent nothing for" in second
        assert b"[DONE]" not in answer.content
        async with asyncio.timeout(60):
            await node.left.wait()


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED])
async def test_an_answer_cut_at_any_byte_never_passes_for_the_whole(answer: bytes) -> None:
    node = FakeNode()
    async with fake_nodes(node), running_proxy(node) as front:
        found = front.proxy.fleet.find(node.url)
        assert found is not None
        for cut in range(len(answer)):
            node.answer = sending(answer[:cut], close=True)
            request = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
            got = await exchange(front.url, request)
            found.breaker.reset()
            head, _, body = got.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 50") or not (
                body.endswith(b"0\r\n\r\n") or body.endswith(b'it"}')
            )
        node.answer = sending(answer)
        assert (await front.chat()).status_code == 200
        assert found.in_flight == 0


async def test_a_node_that_dies_between_the_choice_and_the_connection_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = FakeNode("one"), FakeNode("two")
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        assign = front.proxy.fleet.assign
        killed: list[str] = []

        def assign_and_kill(*args: Any, **fields: Any) -> Assignment:
            assignment = assign(*args, **fields)
            if not killed:
                [victim] = [node for node in nodes if node.url == assignment.node.url]
                killed.append(victim.name)
                victim.kill()
            return assignment

        monkeypatch.setattr(front.proxy.fleet, "assign", assign_and_kill)
        answer = await front.chat()
        assert answer.status_code == 200
        assert answer.json()["node"] not in killed
