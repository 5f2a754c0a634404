"""Connections as bytes on a real socket: clients that leave, half-close, stop reading, or send invalid requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.http.connection import HttpConnection
from jan_serve.http.guards import body as body_guard
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, endings, saying
from tests.support.processes import until
from tests.support.servers.fronts import RawClient, live_server, raw_client, raw_post

pytestmark = pytest.mark.anyio


class SmallConnection(HttpConnection):
    """It takes little, and looks often for clients that left."""

    max_head_bytes = 4096
    probe_s = 0.02


class QuickConnection(SmallConnection):
    """A deadline that a test can wait for, and no test must keep."""

    timeout_s = 0.1


class LateConnection(HttpConnection):
    """Its next request may come long after the server's end began."""

    next_request_s = 600.0


class SoonConnection(HttpConnection):
    """Its next request has to come soon."""

    next_request_s = 0.1


def completion(**body: Any) -> bytes:
    return raw_post("/v1/completions", json.dumps({"prompt": "a"} | body).encode())


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Gate:
    """A script that waits before its first chunk, until the gate is opened."""

    def __init__(self, *pieces: str) -> None:
        self.opened = asyncio.Event()
        self.pieces = pieces

    async def __call__(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 1)
        await self.opened.wait()
        for piece in self.pieces:
            yield Chunk(0, piece, id=request.id)
        for event in endings(request, len(self.pieces)):
            yield event


async def endless(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    yield Accepted(request.id, 1)
    while True:
        yield Chunk(0, "x" * 1000, id=request.id)
        await asyncio.sleep(0)


async def silent(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    yield Accepted(request.id, 1)
    await asyncio.Event().wait()


def over(script: Script) -> tuple[FakeClient, FakeModels]:
    client = FakeClient(script=script)
    return client, FakeModels(client)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [endless, silent], ids=["decode", "prefill"])
async def test_a_client_that_leaves_ends_its_generation(script: Script, stream: bool) -> None:
    engine, models = over(script)
    async with live_server(models, connection=SmallConnection) as port:
        async with raw_client(port) as client:
            await client.send(completion(stream=stream))
            await until(lambda: len(engine.requests) == 1)
            if stream:
                await client.until(b"\r\n\r\n")
        await until(lambda: bool(engine.closed_early))
        assert models.held == 0
        async with raw_client(port) as client:
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"jan_serve_cancelled_total 1.0" in await client.rest()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_half_closed_client_gets_its_whole_answer(stream: bool) -> None:
    gate = Gate("Hel", "lo.")
    engine, models = over(gate)
    async with live_server(models, connection=SmallConnection) as port, raw_client(port) as client:
        await client.send(completion(stream=stream))
        client.half_close()
        await until(lambda: len(engine.requests) == 1)
        if stream:
            head = await client.until(b"1\r\n\n\r\n")
        else:
            head = await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert head
        gate.opened.set()
        answer = await client.rest()
    assert not engine.closed_early
    if stream:
        assert b"Hel" in answer
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    else:
        assert b"HTTP/1.1 200 OK" in answer
        assert b"connection: close" in answer
        assert b'"text":"Hello."' in answer


async def test_a_quick_answer_to_a_half_closed_client_has_nothing_else() -> None:
    _, models = over(saying("ok"))
    async with live_server(models) as port, raw_client(port) as client:
        await client.send(completion())
        client.half_close()
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_connection_header_is_sent_once(stream: bool) -> None:
    for header, expected in (("Connection: close", [b"connection: close"]), ("X-Nothing: 1", [])):
        async with live_server() as port, raw_client(port) as client:
            body = json.dumps({"prompt": "a", "stream": stream}).encode()
            await client.send(raw_post("/v1/completions", body, header))
            head = await client.until(b"\r\n\r\n")
        assert [line for line in head.lower().split(b"\r\n") if line.startswith(b"connection")] == expected


async def test_a_request_cut_short_is_dropped() -> None:
    async with live_server() as port, raw_client(port) as client:
        await client.send(completion()[:-3])
        client.half_close()
        assert b"200 OK" not in await client.rest()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
        "/api/chat",
        "/tgi/generate",
        "/lmdeploy/generate",
    ],
)
async def test_a_client_that_leaves_inside_its_body_is_no_failure_of_ours(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jan_serve.request")
    async with live_server() as port:
        async with raw_client(port) as client:
            await client.send(raw_post(path, b"{}" * 50)[:-50])
        await until(lambda: any(record.name == "jan_serve.request" for record in caplog.records))
    told = [record for record in caplog.records if record.name.startswith("jan_serve") or record.levelno > 20]
    assert [record.getMessage() for record in told] == [f"POST {path} 499"]


async def test_a_reader_that_is_stuck_is_dropped_and_hurts_nobody() -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        source = endless if "stuck" in str(request.prompt) else saying("fine")
        async for event in source(request):
            yield event

    engine, models = over(script)
    async with live_server(models, write_timeout_s=0.2) as port:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, completion(prompt="stuck", stream=True))
        assert await loop.sock_recv(sock, 1)
        async with raw_client(port) as client:
            await client.send(completion(prompt="other", stream=True))
            assert b"fine" in await client.until(b"[DONE]")
        await until(lambda: bool(engine.closed_early))
        assert models.held == 0
        sock.close()


async def test_a_kept_connection_serves_one_request_after_another() -> None:
    async with live_server(connection=SmallConnection) as port, raw_client(port) as client:
        for _ in range(3):
            await client.send(completion())
            head = (await client.until(b"\r\n\r\n")).decode()
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            assert json.loads(await client.reader.readexactly(length))["choices"]


async def refusal(client: RawClient, data: bytes) -> tuple[int, str]:
    """Status and code of the answer to these bytes, after which the server closes."""
    await client.send(data)
    head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]["code"]


CHUNKED = raw_post("/v1/completions", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 5000, 431),
        (b"GET /" + b"a" * 5000, 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1015, 431),
        (CHUNKED + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 2000, 431),
        (CHUNKED + b"1\r\n{\r\n0\r\na: " + b"b" * 10_000, 431),
        (CHUNKED + b"1;" + b"b" * 10_000, 431),
        (b"nonsense\r\n\r\n", 400),
        (raw_post("/v1/completions", b"{}", "Transfer-Encoding: chunked"), 400),
        (raw_post("/v1/completions", b"{}", "Content-Length: 3"), 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
    ids=[
        "header",
        "target",
        "many",
        "many small",
        "trailers",
        "trailer",
        "extension",
        "nonsense",
        "two framings",
        "two lengths",
        "bad length",
        "blank",
        "bad chunk",
    ],
)
async def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    async with live_server(connection=SmallConnection) as port, raw_client(port) as client:
        assert (await refusal(client, data))[0] == status


@pytest.mark.parametrize(
    ("bad", "status"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET /" + b"a" * 10_000, b"431"), (b"GET / HT", b"408")],
)
async def test_what_is_refused_behind_a_stream_does_not_break_it(bad: bytes, status: bytes) -> None:
    gate = Gate("Hel", "lo.")
    engine, models = over(gate)
    async with live_server(models, connection=QuickConnection) as port, raw_client(port) as client:
        await client.send(completion(stream=True) + bad)
        await until(lambda: len(engine.requests) == 1)
        await asyncio.sleep(2 * QuickConnection.timeout_s)  # the deadline of a head, had it one here
        gate.opened.set()
        stream, _, refused = (await client.rest()).partition(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert stream.startswith(b"HTTP/1.1 200 ") and stream.count(b"HTTP/1.1 ") == 1
    assert refused.startswith(b"HTTP/1.1 " + status)


async def test_a_half_closed_client_gets_nothing_between_the_parts_of_an_answer_for_the_next_one() -> None:
    gate = Gate("Hel", "lo.")
    engine, models = over(gate)
    async with live_server(models, connection=SmallConnection) as port, raw_client(port) as client:
        await client.send(completion(stream=True) + HEALTH * 2)
        client.half_close()
        await until(lambda: len(engine.requests) == 1)
        gate.opened.set()
        answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert b" 100 " not in answers


async def test_pipelined_requests_are_all_answered_and_few_are_held() -> None:
    seen: list[int] = []

    class Counted(HttpConnection):
        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            seen.append(len(self.pipeline))

    async with live_server(connection=Counted) as port, raw_client(port) as client:
        await client.send(HEALTH * 1000 + HEALTH[:-2] + b"Connection: close\r\n\r\n")
        answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == 1001
    assert max(seen) <= 2048 // len(HEALTH) + 1


UPGRADES = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==",
)


@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "websocket"])
async def test_a_request_that_offers_another_protocol_is_answered_in_this_one(upgrade: str) -> None:
    """Java's HttpClient offers h2c with the first request of a connection, body and all."""
    body = b'{"input":"GET /health HTTP/1.1"}'
    async with live_server(connection=SmallConnection) as port, raw_client(port) as client:
        for headers in ((upgrade,), ()):
            await client.send(raw_post("/extras/tokenize/count", body, *headers))
            head = (await client.until(b"\r\n\r\n")).decode()
            assert head.startswith("HTTP/1.1 200")
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            assert json.loads(await client.reader.readexactly(length)) == {"count": 21}
        await client.send(f"GET /health HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n\r\n".encode())
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_slow_head_is_refused_and_silence_is_closed() -> None:
    async with live_server(connection=QuickConnection) as port:
        async with raw_client(port) as client:
            assert await refusal(client, b"GET / HT") == (408, "request_timeout")
        async with raw_client(port) as client:
            assert await client.rest() == b""


async def test_a_large_body_is_no_large_head() -> None:
    body = json.dumps({"input": "a" * 50_000}).encode()
    async with live_server(connection=SmallConnection) as port, raw_client(port) as client:
        await client.send(raw_post("/extras/tokenize", body, "Connection: close"))
        assert (await client.rest()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://localhost/v1/models HTTP/1.1\r\nHost: localhost\r\n",
        b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        b"GET /v1/models HTTP/1.1\r\n",
        b"GET /v1/models HTTP/1.0\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: evil.example:1337\r\n",
    ],
)
async def test_hosts_that_only_a_raw_client_can_send(head: bytes) -> None:
    async with live_server() as port, raw_client(port) as client:
        await client.send(head + b"Connection: close\r\n\r\n")
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"forbidden_host" in answer


async def test_a_chunked_body_without_end_is_cut_off_at_the_limit() -> None:
    async with live_server(max_body_bytes=4096) as port, raw_client(port) as client:
        head = "POST /extras/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        await client.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"400\r\n" + b" " * 0x400 + b"\r\n"
        for _ in range(6):
            await client.send(chunk)
        answer = await client.until(b"body_too_large")
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_guard, "BODY_TIMEOUT_S", 0.05)
    async with live_server(max_body_bytes=1024) as port, raw_client(port) as client:
        request = raw_post("/extras/tokenize", b'{"input":"a"}')
        await client.send(request[:-1])
        head = await client.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head


async def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    """Head and body are two writes: with Nagle's algorithm the second takes 40 ms on a kept connection."""
    times: list[float] = []
    async with live_server() as port, raw_client(port) as client:
        for _ in range(30):
            start = time.perf_counter()
            await client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await client.until(b"\r\n\r\n")).decode()
            await client.reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
            times.append(time.perf_counter() - start)
    # The first ones are acknowledged at once.
    assert min(times[15:]) < 0.03


class FewConnections(HttpConnection):
    """A limit that a test can reach."""

    max_connections = 3


async def test_above_the_limit_the_connection_that_has_waited_longest_is_closed() -> None:
    gate = Gate("a", "b")
    engine, models = over(gate)
    async with (
        live_server(models, connection=FewConnections) as port,
        raw_client(port) as answered,
        raw_client(port) as kept,
        raw_client(port) as silent,
    ):
        await answered.send(completion(stream=True))
        await until(lambda: len(engine.requests) == 1)
        for client in (silent, kept):
            await client.send(HEALTH)
            await client.until(b'"uptime')
        async with raw_client(port) as new:
            await silent.rest()  # it is closed
            await new.send(HEALTH)
            assert b"200 OK" in await new.until(b"\r\n\r\n")
        gate.opened.set()
        assert b"[DONE]" in await answered.until(b"[DONE]")
        await kept.send(HEALTH)
        assert b"200 OK" in await kept.until(b"\r\n\r\n")


async def test_where_all_are_being_answered_a_new_connection_is_taken() -> None:
    gate = Gate("a")
    engine, models = over(gate)
    async with live_server(models, connection=FewConnections) as port, contextlib.AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(raw_client(port)) for _ in range(3)]
        for number, client in enumerate(busy, 1):
            await client.send(completion(stream=True))
            await until(lambda n=number: len(engine.requests) == n)
        async with raw_client(port) as new:
            await new.send(HEALTH)
            assert b"200 OK" in await new.until(b"\r\n\r\n")
        gate.opened.set()
        for client in busy:
            assert await client.until(b"[DONE]")


def recording(connection: type[HttpConnection]) -> tuple[type[HttpConnection], list[HttpConnection]]:
    """The same, and the connections that were made."""
    made: list[HttpConnection] = []

    class Recorded(connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)

    return Recorded, made


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("sent", [0, 10, len(HEALTH) - 1])
async def test_the_next_request_on_a_connection_is_answered_at_the_end_of_the_server(
    sent: int, answered: int
) -> None:
    """Its client cannot know that the end began before the request came."""
    connection, made = recording(LateConnection)
    async with live_server(connection=connection) as port, raw_client(port) as client:
        await client.send(HEALTH * answered + HEALTH[:sent])
        for _ in range(answered):
            await client.until(b"}")
        await until(lambda: bool(made))
        made[0].shutdown()
        await client.send(HEALTH[sent:])
        answer = await client.rest()
        assert (answer.count(b" 200 OK"), answer.count(b"connection: close")) == (1, 1)


async def test_a_request_behind_an_answer_that_had_begun_is_answered_at_the_end_of_the_server() -> None:
    """The head of that answer did not say that the connection ends."""
    gate = Gate("Hel", "lo.")
    connection, made = recording(LateConnection)
    async with live_server(over(gate)[1], connection=connection) as port, raw_client(port) as client:
        await client.send(completion(stream=True))
        await client.until(b"\r\n\r\n")
        made[0].shutdown()
        gate.opened.set()
        await client.until(b"[DONE]")
        await client.send(HEALTH)
        assert b" 200 OK" in await client.rest()


async def test_a_connection_without_a_request_does_not_hold_up_the_end_of_the_server() -> None:
    connection, made = recording(SoonConnection)
    async with live_server(connection=connection) as port, raw_client(port) as client:
        await until(lambda: bool(made))
        made[0].shutdown()
        assert await client.rest() == b""


async def test_a_part_of_a_head_is_refused_at_the_end_of_the_server() -> None:
    connection, made = recording(SoonConnection)
    async with live_server(connection=connection) as port, raw_client(port) as client:
        await client.send(HEALTH[:10])
        await until(lambda: bool(made))
        made[0].shutdown()
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert (head[9:12], json.loads(body)["error"]["code"]) == (b"503", "draining")
