"""One connection to a node, over a transport of the test: answers at every split, and what is no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jan_serve.proxy.upstream.connection import (
    HIGH_WATER,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_INTERIM,
    MAX_OVERHEAD_BYTES,
    Failure,
    NodeConnection,
    NodeFailure,
)

pytestmark = pytest.mark.anyio

LIMIT_S = 30.0


class Transport:
    """Records what the connection does with it."""

    def __init__(self) -> None:
        self.sent = b""
        self.calls: list[str] = []

    def write(self, data: bytes) -> None:
        self.sent += data

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def opened() -> tuple[NodeConnection, Transport]:
    """A connection that has sent a request."""
    connection, transport = NodeConnection(asyncio.get_running_loop()), Transport()
    connection.connection_made(transport)  # pyright: ignore[reportArgumentType]
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    return connection, transport


async def body_of(connection: NodeConnection) -> bytes:
    found = b""
    while part := await connection.read(LIMIT_S):
        found += part
    return found


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED, INTERIM + WHOLE])
async def test_an_answer_at_every_split(answer: bytes) -> None:
    for split in range(len(answer) + 1):
        connection, transport = opened()
        for part in (answer[:split], answer[split:]):
            if part:
                connection.data_received(part)
        head = await connection.head(LIMIT_S)
        assert (head.status, await body_of(connection)) == (200, b"hello")
        assert head.header(b"x-interim") is None
        assert connection.is_reusable and transport.calls == []


async def test_a_second_exchange_knows_nothing_of_the_first() -> None:
    connection, transport = opened()
    connection.data_received(WHOLE)
    await body_of(connection)
    connection.send(b"second")
    assert not connection.was_answered and not connection.is_reusable
    connection.data_received(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
    head = await connection.head(LIMIT_S)
    assert (head.status, head.header(b"x-a"), await body_of(connection)) == (404, None, b"")
    assert transport.sent.endswith(b"second")


@pytest.mark.parametrize("more", [WHOLE, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", INTERIM, b"x"])
async def test_what_follows_an_answer_is_no_part_of_it(more: bytes) -> None:
    for split in (len(WHOLE), len(WHOLE + more)):
        connection, transport = opened()
        for part in (WHOLE[:split] + more[: split - len(WHOLE)], more[split - len(WHOLE) :]):
            if part:
                connection.data_received(part)
        head = await connection.head(LIMIT_S)
        assert (head.status, head.headers) == (200, [(b"content-length", b"5"), (b"x-a", b"b")])
        assert await body_of(connection) == b"hello"
        assert not connection.is_reusable
        assert transport.calls == ["abort"]


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED])
async def test_it_knows_at_every_split_whether_all_is_read(answer: bytes) -> None:
    for split in range(answer.index(b"\r\n\r\n") + 4, len(answer)):
        connection, _ = opened()
        connection.data_received(answer[:split])
        assert not connection.is_read
        await connection.head(LIMIT_S)
        connection.data_received(answer[split:])
        assert not connection.is_read
        assert await connection.read(LIMIT_S) == b"hello"
        assert connection.is_read


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-x\r\n", "not HTTP/1.1"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "protocol|status 101",
        ),
        (b"HTTP/1.1 600 No\r\n\r\n", "status 600"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (MAX_HEADERS + 2), f"more than {MAX_HEADERS} header"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * MAX_HEAD_BYTES, "a head of more than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "not HTTP/1.1"),
    ],
)
async def test_what_is_no_answer(answer: bytes, words: str) -> None:
    connection, transport = opened()
    connection.data_received(answer)
    with pytest.raises(NodeFailure, match=words) as caught:
        await connection.head(LIMIT_S)
    assert caught.value.kind is Failure.PROTOCOL
    assert "abort" in transport.calls and not connection.is_reusable


@pytest.mark.parametrize(
    ("part", "error", "body"),
    [
        (WHOLE[:-1], None, None),
        (CHUNKED[:-3], None, None),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", None, b"hello"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", ConnectionResetError(), None),
        (b"HTTP/1.1 200 OK\r\nContent", None, None),
    ],
)
async def test_a_part_never_passes_for_the_whole(
    part: bytes, error: Exception | None, body: bytes | None
) -> None:
    connection, _ = opened()
    connection.data_received(part)
    connection.connection_lost(error)
    if body is not None:
        assert await body_of(connection) == body
    else:
        with pytest.raises(NodeFailure, match="within its answer") as caught:
            await connection.head(LIMIT_S)
            await body_of(connection)
        assert caught.value.kind is Failure.RESET
    assert not connection.is_reusable


async def test_a_connection_that_ends_without_an_answer() -> None:
    connection, _ = opened()
    connection.connection_lost(None)
    with pytest.raises(NodeFailure, match="without an answer"):
        await connection.head(LIMIT_S)
    assert not connection.was_answered


async def test_a_node_is_not_read_while_its_client_does_not_read() -> None:
    connection, transport = opened()
    size = 2 * HIGH_WATER
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size))
    connection.data_received(b"x" * size)
    connection.data_received(b"x" * 10)
    assert transport.calls == ["pause_reading"]
    assert len(await connection.read(LIMIT_S)) == size + 10
    assert transport.calls == ["pause_reading", "resume_reading"]


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
async def test_a_connection_that_the_node_closes_is_not_used_again(head: bytes) -> None:
    connection, _ = opened()
    connection.data_received(head)
    await connection.head(LIMIT_S)
    assert not connection.is_reusable


async def test_a_silent_node_is_given_up() -> None:
    connection, transport = opened()
    with pytest.raises(NodeFailure, match="sent nothing for 0 s") as caught:
        await connection.head(0.0)
    assert caught.value.kind is Failure.TIMEOUT
    assert transport.calls == ["abort"]


async def test_an_idle_connection_that_is_lost_is_reported_once() -> None:
    connection, _ = opened()
    lost: list[NodeConnection] = []
    connection.data_received(WHOLE)
    await body_of(connection)
    connection.on_idle_lost = lost.append
    connection.connection_lost(None)
    assert lost == [connection] and not connection.is_reusable


HINT = b"HTTP/1.1 103 Early Hints\r\n\r\n"
START = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "interim answers": (b"", HINT, "interim answers"),
    "interim answers with fields": (
        b"",
        b"HTTP/1.1 102 P\r\n" + b"A: b\r\n" * 150 + b"\r\n",
        "a head of more",
    ),
    "chunk extensions": (START + b"5;", b"a=b;" * 1000, "chunk extensions or trailers of more"),
    "trailers": (START + b"2\r\nhe\r\n0\r\n", b"A: b\r\n" * 100, "trailers of more|header fields"),
    "a trailer": (START + b"2\r\nhe\r\n0\r\nA: ", b"b" * 5000, "chunk extensions or trailers of more"),
}


@pytest.mark.parametrize("piece_bytes", [100, 1 << 18])
@pytest.mark.parametrize(("start", "again", "words"), ENDLESS.values(), ids=ENDLESS)
async def test_what_a_node_sends_without_end_ends_at_a_limit(
    start: bytes, again: bytes, words: str, piece_bytes: int
) -> None:
    connection, transport = opened()
    data = start + again * (4 * MAX_OVERHEAD_BYTES // len(again))
    sent = 0
    while sent < len(data) and not transport.calls:
        connection.data_received(data[sent : sent + piece_bytes])
        sent += piece_bytes
    assert transport.calls == ["abort"]
    assert sent <= max(2 * MAX_OVERHEAD_BYTES, piece_bytes)
    with pytest.raises(NodeFailure, match=words) as caught:
        await connection.head(LIMIT_S)
        await body_of(connection)
        await connection.read(LIMIT_S)
    assert caught.value.kind is Failure.PROTOCOL


async def test_some_interim_answers_and_a_long_body_of_short_chunks_are_an_answer() -> None:
    connection, transport = opened()
    data = HINT * MAX_INTERIM + START + b"1;x=y\r\na\r\n" * 20_000 + b"0\r\nA: b\r\n\r\n"
    for start in range(0, len(data), 1 << 16):
        connection.data_received(data[start : start + (1 << 16)])
    assert (await connection.head(LIMIT_S)).status == 200
    assert await body_of(connection) == b"a" * 20_000
    assert transport.calls == []
