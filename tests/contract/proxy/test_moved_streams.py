"""Streams of nodes that end: another node goes on with what the client lacks, and nothing of a node is trusted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from jan_serve.core.transcript import (
    ASKED,
    MAX_LOG_BYTES,
    RECORDED,
    Asked,
    Kind,
    Record,
    read_asked,
    recorded_header,
)
from jan_serve.fleet.node import NodeState
from jan_serve.proxy import probes, written_stream
from jan_serve.proxy.written_stream import KeptBytes
from tests.support.servers.fake_nodes import (
    Answer,
    FakeNode,
    Received,
    RunningProxy,
    chunk,
    fake_nodes,
    reply,
    running_proxy,
    sending,
)

pytestmark = pytest.mark.anyio

WEIGHTS, OTHERS = "ab" * 16, "cd" * 16
FRAMES = [b'data: {"n":%d}\n\n' % number for number in range(4)]
PING = b": ping\n\n"
RECORDS = [Record(Kind.FRAME, b"e%d;" % number, frame) for number, frame in enumerate(FRAMES)]
BODY = b"".join(record.encoded() for record in [RECORDS[0], Record(Kind.PING, b"", PING), *RECORDS[1:]])
ENDING = b'data: {"error":"it stops"}\n\n'
GIVES_UP = Record(Kind.FAILURE, b"", ENDING).encoded()


def head(weights: str = WEIGHTS, media_type: str = "text/event-stream", header: str | None = None) -> bytes:
    value = recorded_header(weights, PING) if header is None else header
    return (
        f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ntransfer-encoding: chunked\r\n"
        f"{RECORDED.decode()}: {value}\r\n\r\n"
    ).encode()


def begins(body: bytes, *, dies: bool = True, **fields: Any) -> Answer:
    """Sends so much of a stream."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head(**fields) + (chunk(body) if body else b"") + (b"" if dies else b"0\r\n\r\n"))
        await writer.drain()
        if dies:
            writer.close()

    return answer


def once(body: bytes, **fields: Any) -> Answer:
    """As `begins`, and does not go on."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        if asked_of(request).weights:
            writer.write(reply({}, 400))
        else:
            await begins(body, **fields)(request, writer)

    return answer


def asked_of(request: Received) -> Asked:
    return read_asked(request.headers[ASKED.decode()].encode())


async def goes_on(request: Received, writer: asyncio.StreamWriter) -> None:
    """As a node that has the events."""
    asked = asked_of(request)
    log = request.body[: asked.log_bytes]
    assert request.body[asked.log_bytes :].startswith(b"{")
    number = log.count(b";")
    assert log == b"".join(b"e%d;" % each for each in range(number)) and asked.shown <= number
    rest = [
        Record(Kind.FRAME, b"" if each < number else b"e%d;" % each, FRAMES[each]).encoded()
        for each in range(asked.shown, len(FRAMES))
    ]
    writer.write(head() + b"".join(map(chunk, rest)) + b"0\r\n\r\n")


def ours(name: str, answer: Answer) -> FakeNode:
    return FakeNode(name, health=(200, {"status": "ok", "open_requests": 0}), answer=answer)


@contextlib.asynccontextmanager
async def behind_a_proxy(*nodes: FakeNode, **settings: Any) -> AsyncGenerator[RunningProxy]:
    """The first node gets the first request."""
    given: dict[str, Any] = {"patience_s": 1.0, **settings}
    async with fake_nodes(*nodes), running_proxy(*nodes, **given) as front:
        for node in front.proxy.fleet:
            await front.proxy.probes.probe(node)
        for node in nodes[1:]:
            found = front.proxy.fleet.find(node.url)
            assert found is not None
            found.others = 1000
        yield front


async def stream(front: RunningProxy, **headers: str) -> httpx.Response:
    body: dict[str, Any] = {"model": "m1", "messages": [], "stream": True}
    return await front.client.post("/v1/chat/completions", json=body, headers=headers)


@pytest.mark.parametrize("step", range(5))
async def test_a_stream_goes_on_from_each_byte(step: int) -> None:
    for cut in range(1 + step, len(BODY), 5):
        first, second = ours("first", begins(BODY[:cut])), ours("second", goes_on)
        async with behind_a_proxy(first, second) as front:
            answer = await stream(front)
            assert answer.content.replace(PING, b"") == b"".join(FRAMES), cut
            assert answer.content.count(PING) >= 1
            assert front.proxy.forwarder.counts.moved == 1
            assert asked_of(second.generations[0]).identity == asked_of(first.generations[0]).identity


async def test_each_death_with_progress_is_outlived_and_poison_is_not() -> None:
    nodes = [ours(str(number), begins(RECORDS[0].encoded())) for number in range(2)]

    async def one_more(request: Received, writer: asyncio.StreamWriter) -> None:
        asked = asked_of(request)
        record = RECORDS[asked.shown] if asked.shown < len(RECORDS) else None
        writer.write(head() + (chunk(record.encoded()) if record else b"0\r\n\r\n"))
        await writer.drain()
        if record:
            writer.close()

    for node in nodes:
        node.answer = one_more
    async with behind_a_proxy(*nodes, patience_s=5.0) as front:
        assert (await stream(front)).content.replace(PING, b"") == b"".join(FRAMES)
        assert front.proxy.forwarder.counts.moved == 4

    async def is_ended_by_the_rest(request: Received, writer: asyncio.StreamWriter) -> None:
        await begins(b"\0" if asked_of(request).shown else RECORDS[0].encoded())(request, writer)

    nodes = [ours(str(number), is_ended_by_the_rest) for number in range(2)]
    async with behind_a_proxy(*nodes) as front:
        answer = await stream(front)
        assert answer.content.startswith(FRAMES[0]) and b"closed the connection" in answer.content
        assert sum(len(node.generations) for node in nodes) <= 4


async def test_a_node_that_never_ends_its_stream_and_always_dies_is_left_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written_stream, "MAX_MOVES", 2)
    async with behind_a_proxy(ours("liar", begins(RECORDS[0].encoded()))) as front:
        answer = await stream(front)
        assert b"closed the connection" in answer.content
        assert answer.content.count(FRAMES[0]) == 3


async def test_a_node_that_gives_up_hands_over_or_ends_with_its_own_error() -> None:
    leaves = ours("leaves", begins(RECORDS[0].encoded() + GIVES_UP, dies=False))
    async with behind_a_proxy(leaves, ours("stays", goes_on)) as front:
        assert (await stream(front)).content.replace(PING, b"") == b"".join(FRAMES)
        found = front.proxy.fleet.find(leaves.url)
        assert found is not None and found.failures == 0
    leaves = ours("leaves", once(RECORDS[0].encoded() + GIVES_UP, dies=False))
    async with behind_a_proxy(leaves) as front:
        assert (await stream(front)).content.replace(PING, b"") == FRAMES[0] + ENDING


def holds(body: bytes, rest: bytes = b"", then: asyncio.Event | None = None) -> Answer:
    """Sends so much of a stream, and then the rest; without `then`, nothing until the proxy leaves."""

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + chunk(body))
        await writer.drain()
        if then is None:
            await writer.wait_closed()
        else:
            await then.wait()
            writer.write(chunk(rest) + b"0\r\n\r\n")

    return answer


LEAVES = Record(Kind.LEAVES, b"", b"").encoded()


async def test_a_stream_of_a_node_that_leaves_goes_on_at_once_at_another() -> None:
    leaves = ours("leaves", holds(RECORDS[0].encoded() + LEAVES))
    async with behind_a_proxy(leaves, ours("stays", goes_on)) as front:
        assert (await stream(front)).content.replace(PING, b"") == b"".join(FRAMES)
        await asyncio.wait_for(leaves.left.wait(), 20)
        found = front.proxy.fleet.find(leaves.url)
        assert found is not None and (found.failures, found.in_flight) == (0, 0)


@pytest.mark.parametrize(
    "other",
    [None, begins(BODY, dies=False, weights=OTHERS), sending(reply({}, 503))],
    ids=["none", "weights", "busy"],
)
async def test_a_node_that_leaves_ends_its_stream_itself_if_no_other_can(other: Answer | None) -> None:
    is_asked = asyncio.Event()

    async def noted(request: Received, writer: asyncio.StreamWriter) -> None:
        assert other is not None
        await other(request, writer)
        is_asked.set()

    others = [] if other is None else [ours("other", noted)]
    if not others:
        is_asked.set()
    rest = b"".join(LEAVES + record.encoded() for record in RECORDS[1:])
    leaves = ours("leaves", holds(RECORDS[0].encoded() + LEAVES, rest, is_asked))
    async with behind_a_proxy(leaves, *others) as front:
        assert (await stream(front)).content.replace(PING, b"") == b"".join(FRAMES)
        assert front.proxy.forwarder.counts.moved == 0
        assert all(len(node.generations) == 1 for node in others)  # a node is heard once


@pytest.mark.parametrize("how", ["drains", "freezes", "writes while its checks fail"])
async def test_a_check_moves_the_streams_of_a_node(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ours("first", holds(RECORDS[0].encoded())), ours("second", goes_on)
    async with behind_a_proxy(first, second) as front:
        node = front.proxy.fleet.find(first.url)
        assert node is not None
        started = front.proxy.forwarder.clock()
        answer = asyncio.create_task(stream(front))
        async with asyncio.timeout(20):
            while node.heard_s < started:
                await asyncio.sleep(0)
        if how == "drains":
            first.health = (503, {"status": "draining"})
        else:
            monkeypatch.setattr(probes, "PROBE_S", 0.01)
            first.routes["/health"] = lambda _, writer: writer.wait_closed()
        if how == "writes while its checks fail":
            node.heard_s = float("inf")
        await front.until_state(first, NodeState.DRAINING, NodeState.LOST)
        await front.proxy.probes.probe(node)
        if how == "writes while its checks fail":
            assert second.generations == []
            first.kill()
        assert (await answer).content.replace(PING, b"") == b"".join(FRAMES)


@pytest.mark.parametrize(
    "other",
    [
        begins(BODY, dies=False, weights=OTHERS),
        begins(BODY, dies=False, header="none"),
        once(b"", dies=False),
        begins(b"\xff" * 64, dies=False),
    ],
    ids=["weights", "no-records", "refusal", "garbage"],
)
async def test_one_that_cannot_go_on_is_passed_over(other: Answer) -> None:
    first = ours("first", once(RECORDS[0].encoded()))
    async with behind_a_proxy(first, ours("other", other), ours("able", goes_on)) as front:
        able = list(front.proxy.fleet)[2]
        able.others = 10_000
        assert (await stream(front)).content.replace(PING, b"") == b"".join(FRAMES)


async def test_servers_of_others_get_no_events() -> None:
    first, stranger = ours("first", once(BODY[:60])), FakeNode("stranger", answer=goes_on)
    async with behind_a_proxy(first, stranger) as front:
        answer = await stream(front)
        assert b"closed the connection" in answer.content
        assert stranger.generations == []


async def test_a_stream_without_comments_gets_none() -> None:
    nodes = ours("first", once(RECORDS[0].encoded(), header=WEIGHTS)), ours("second", goes_on)
    async with behind_a_proxy(*nodes) as front:
        assert (await stream(front)).content == b"".join(FRAMES)


async def test_headers_of_clients_are_not_those_of_the_proxy() -> None:
    node = ours("node", begins(BODY, dies=False))
    async with behind_a_proxy(node) as front:
        answer = await stream(front, **{ASKED.decode(): Asked("0" * 32, 1).header.decode()})
        assert RECORDED.decode() not in answer.headers
        assert asked_of(node.generations[0]).identity != "0" * 32
        assert node.generations[0].headers[ASKED.decode()].count(" ") == 1


@pytest.mark.parametrize(
    "lie",
    [
        b"\x00" + b"\xff" * 8,
        b"\x09" + bytes(8),
        Record(Kind.FRAME, b"x" * (MAX_LOG_BYTES - 1), FRAMES[0]).encoded() * 2,
        RECORDS[0].encoded() + b"\x00\x00",
    ],
    ids=["lengths", "kind", "more-events-than-kept", "a-part"],
)
async def test_lies_cost_the_answer_and_nothing_else(lie: bytes) -> None:
    async with behind_a_proxy(ours("liar", once(lie, dies=False))) as front:
        kept = front.proxy.forwarder.kept
        left = kept.left
        answer = await stream(front)
        assert answer.status_code == 200
        assert len(answer.content) < 1000
        assert kept.left == left
        assert (await front.client.get("/health")).status_code == 200


async def test_events_have_a_limit_together() -> None:
    kept = KeptBytes(10)
    assert kept.take(10) and not kept.take(1)
    kept.give_back(1)
    assert kept.take(1)


async def test_a_short_whole_answer_that_breaks_is_asked_again() -> None:
    part = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"a'

    async def breaks(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(part)
        await writer.drain()
        writer.close()

    async with behind_a_proxy(ours("first", breaks), FakeNode("second")) as front:
        assert (await front.chat()).json()["node"] == "second"
