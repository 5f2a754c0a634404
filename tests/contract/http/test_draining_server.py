"""Shutdown: answers to running and new requests, its duration, and that nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from jan_serve.daemon.running import InheritedSocket
from jan_serve.proxy.app import Proxy
from jan_serve.proxy.server import ProxyServer, proxy_config
from jan_serve.proxy.settings import ProxySettings
from tests.support.clients.raw_http import connect, post_bytes
from tests.support.engine.engines import Gate
from tests.support.processes import until, wait_until, workers_of
from tests.support.servers.front_process import FrontProcess, front_process
from tests.support.servers.fronts import raw_client

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")


def workers(front: FrontProcess) -> list[psutil.Process]:
    return workers_of(front.process.pid)


def test_a_body_that_is_on_its_way_is_refused_when_the_drain_begins(tmp_path: Path) -> None:
    with front_process(tmp_path, drain_s=60) as front, connect(f"http://127.0.0.1:{front.port}") as client:
        body = b'{"prompt": "a"}'
        client.send(post_bytes(f"http://127.0.0.1:{front.port}", "/v1/completions", body)[:-3])
        wait_until(lambda: front.open_requests() == 1)
        front.signal(signal.SIGTERM)
        response = client.response()
        assert (response.status, response.headers["connection"]) == (503, "close")
        assert response.json()["error"]["code"] == "draining"
        status, log = front.end()
        assert (status, "Traceback" in log, "did not end in time" in log) == (0, False, False)


def test_requests_that_are_refused_meanwhile_do_not_hold_up_the_end(tmp_path: Path) -> None:
    """Their clients never send the bodies that they announced."""
    gate = Gate(tmp_path / "gate")
    with front_process(tmp_path, drain_s=60) as front, contextlib.ExitStack() as clients:
        url = f"http://127.0.0.1:{front.port}"
        stream = front.post(f"!gate {gate.path}", stream=True)
        front.signal(signal.SIGTERM)
        wait_until(lambda: front.health() == (503, "draining"))
        refused = [clients.enter_context(connect(url)) for _ in range(3)]
        for client in refused:
            client.send(post_bytes(url, "/v1/completions", b'{"prompt": "a"}')[:-3])
            assert b" 503 " in client.read_until(b"\r\n\r\n")
        assert front.open_requests() == 1
        gate.open()
        assert stream.read().decode().endswith("data: [DONE]\n\n")
        status, log = front.end()
        assert (status, "Traceback" in log, "did not end in time" in log) == (0, False, False)


def test_the_end_of_its_terminal_ends_a_server_in_order(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with front_process(tmp_path, drain_s=60) as front:
        stream = front.post(f"!gate {gate.path}", stream=True)
        front.signal(signal.SIGHUP)
        wait_until(lambda: front.health() == (503, "draining"))
        gate.open()
        assert stream.read().decode().endswith("data: [DONE]\n\n")
        assert front.end()[0] == 0


def test_the_end_of_its_terminal_does_not_cut_what_a_drain_lets_finish(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with front_process(tmp_path, drain_s=60) as front:
        stream = front.post(f"!gate {gate.path}", stream=True)
        front.signal(signal.SIGTERM)
        wait_until(lambda: front.health() == (503, "draining"))
        front.signal(signal.SIGHUP)
        assert front.health() == (503, "draining")
        gate.open()
        assert stream.read().decode().endswith("data: [DONE]\n\n")
        assert front.end()[0] == 0


def test_where_the_end_of_a_terminal_is_ignored_the_server_goes_on(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with front_process(tmp_path, drain_s=60) as front:
            wait_until(lambda: front.health() == (200, "ok"))
            front.signal(signal.SIGHUP)
            assert front.health() == (200, "ok")
            front.signal(signal.SIGTERM)
            assert front.end()[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


REQUEST = b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"


@contextlib.asynccontextmanager
async def stopping(kind: type[ProxyServer], sock: socket.socket) -> AsyncGenerator[ProxyServer]:
    """A server on this event loop. The block stops it, and ends when it has ended."""
    proxy = Proxy(ProxySettings())
    proxy.open()
    server = kind(proxy_config(proxy.app), proxy.lifecycle, drain_s=0.0)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    await server.listening.wait()
    yield server
    await serving
    await proxy.close()


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with front_process(tmp_path, drain_s=600) as front:
        wait_until(lambda: front.health() == (200, "ok"))
        front.signal(signal.SIGINT)
        status, log = front.end()
        assert (status, "Traceback" in log) == (0, False)


@pytest.mark.anyio
async def test_whom_the_system_accepts_in_the_last_moment_is_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock, socket.socket() as client:

        class LastMoment(ProxyServer):
            async def main_loop(self) -> None:
                await super().main_loop()
                client.connect(sock.getsockname())
                client.sendall(REQUEST)

        async with stopping(LastMoment, sock) as server:
            server.stop()
        client.settimeout(60)
        answer = await asyncio.to_thread(client.recv, 1000)
    assert answer.startswith(b"HTTP/1.1 503 ")


@pytest.mark.anyio
async def test_who_connects_to_an_inherited_socket_at_the_end_waits_for_the_next_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as managers, socket.socket() as client:
        async with stopping(ProxyServer, InheritedSocket(fileno=os.dup(managers.fileno()))) as server:
            server.stop()
            client.connect(managers.getsockname())
            client.sendall(REQUEST)
        managers.settimeout(60)
        accepted, _ = await asyncio.to_thread(managers.accept)
        with accepted:
            accepted.settimeout(60)
            assert await asyncio.to_thread(accepted.recv, 1000) == REQUEST


@pytest.mark.anyio
async def test_a_server_is_not_idle_while_a_connection_waits_for_its_first_request() -> None:
    """An idle one ends, and would refuse that request."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with stopping(ProxyServer, sock) as server, raw_client(sock.getsockname()[1]) as client:
            await until(lambda: bool(server.server_state.connections))
            assert server.idle_s() == 0
            await client.send(REQUEST.replace(b"1.0", b"1.1"))
            await client.until(b"}")
            assert server.idle_s() > 0
            server.stop()
