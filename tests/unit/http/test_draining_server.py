"""Whom the server believes about the address of a client; what does not end it. Shutdown is in tests/contract/http."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from jan_serve.http import draining_server
from jan_serve.http.draining_server import DrainingServer, server_config
from jan_serve.http.lifecycle import Lifecycle
from tests.support.servers.fronts import raw_client

pytestmark = pytest.mark.anyio

FORWARDED = {"x-forwarded-for": "192.168.1.7", "x-forwarded-proto": "https"}


@pytest.mark.parametrize("believes", [True, False])
@pytest.mark.parametrize(
    ("peer", "is_this_machine"), [("127.0.0.1", True), ("::1", True), ("10.0.0.9", False)]
)
async def test_only_a_proxy_on_this_machine_is_believed(
    peer: str, *, is_this_machine: bool, believes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's; jan-serve's configuration is elsewhere
    seen: list[tuple[Any, str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config: Any = server_config(app, believes_forwarded=believes)
    config.load()
    transport = httpx.ASGITransport(config.loaded_app, client=(peer, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/", headers=FORWARDED)).status_code == 204
    assert seen == [("192.168.1.7", "https") if is_this_machine and believes else (peer, "http")]


async def test_the_end_waits_until_an_answer_is_taken() -> None:
    n = 32 << 20

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % n)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * n})

    class Server(DrainingServer):
        async def finish(self, drain_s: float) -> None:
            pass

    config = server_config(app)
    config.timeout_graceful_shutdown = 0
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = Server(config, Lifecycle(), 600.0)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        await server.listening.wait()
        async with raw_client(sock.getsockname()[1]) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await client.until(b"\r\n\r\n")
            server.stop()
            await asyncio.wait([serving], timeout=0.5)
            assert not serving.done()
            assert len(await client.rest()) == n, head
        await serving


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError(), KeyError("a defect")]
)
async def test_what_fails_beside_the_requests_does_not_end_the_server(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, attended = [error], asyncio.Event()

    class Server(DrainingServer):
        async def finish(self, drain_s: float) -> None:
            pass

        async def attend(self, idle_s: float) -> None:
            if errors:
                raise errors.pop()
            attended.set()

    monkeypatch.setattr(draining_server, "_TICK_S", 0.0)
    server = Server(uvicorn.Config(lambda: None), Lifecycle(), 0.0)
    loop = asyncio.create_task(server.main_loop())
    async with asyncio.timeout(60):
        await attended.wait()
        server.stop()
        await loop
