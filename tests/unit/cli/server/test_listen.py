"""Opening the port: only one start succeeds, and the error names the holder."""

from __future__ import annotations

import errno
import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from jan_serve.cli.errors import CommandError
from jan_serve.cli.server.listen import (
    AddressUnavailable,
    AlreadyServing,
    find_holder,
    is_our_command,
    listen,
    listen_also,
    url_of,
)
from jan_serve.dialects.health import Health

HOST = "127.0.0.1"
HEALTH = Health(
    status="ok", state="ready", version="9", pid=4242, uptime_s=1.0, open_requests=0, models=[]
).model_dump()


def test_a_free_port() -> None:
    with listen(HOST, 0) as sock:
        port = sock.getsockname()[1]
        assert url_of(sock) == f"http://127.0.0.1:{port}"
        with socket.create_connection((HOST, port), timeout=5):
            pass
    with listen(HOST, port):
        pass


def test_all_addresses_are_shown_as_loopback() -> None:
    with listen("0.0.0.0", 0) as sock:
        assert url_of(sock).startswith("http://127.0.0.1:")


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6_addresses_have_brackets() -> None:
    try:
        sock = listen("::1", 0)
    except AddressUnavailable:
        pytest.skip("this machine has no IPv6 loopback")
    with sock:
        assert url_of(sock).startswith("http://[::1]:")


def test_a_port_that_another_program_has() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressUnavailable, match=f"^port {port} is in use by ") as caught:
            listen(HOST, port)
    assert caught.value.status == 2
    assert "--port" in (caught.value.next_step or "")
    assert "\n" not in caught.value.message


def test_a_further_port_that_another_program_has() -> None:
    with listen_also(HOST, 0) as sock, pytest.raises(CommandError) as caught:
        listen_also(HOST, sock.getsockname()[1])
    assert caught.value.message.startswith("also_listen: port ")
    assert caught.value.next_step == "Stop that program, or leave out --also-listen."
    assert caught.value.status == 2


@pytest.mark.parametrize(("host", "words"), [("192.0.2.1", "is not an address of this machine")])
def test_addresses_of_other_machines_are_rejected(host: str, words: str) -> None:
    with pytest.raises(AddressUnavailable, match=words):
        listen(host, 0)


def test_unknown_host_names() -> None:
    with pytest.raises(AddressUnavailable, match="unknown host name"):
        listen("no-such-host.invalid", 0)


@contextmanager
def health_server(status: int, body: bytes) -> Generator[int]:
    """A server that answers /health. Yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("status", [200, 503])
def test_a_port_that_jan_serve_has(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(port: int) -> None:
        """As on systems where only root sees the listeners."""

    monkeypatch.setattr("jan_serve.cli.server.listen._listening_pid", unknown)
    with (
        health_server(status, json.dumps(HEALTH).encode()) as port,
        pytest.raises(AlreadyServing, match=rf"already running on port {port} \(pid 4242\)"),
    ):
        listen(HOST, port)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"status": "ok", "pid": 1}'])
def test_other_http_servers_are_not_jan_serve(body: bytes) -> None:
    with health_server(200, body) as port:
        assert not find_holder(HOST, port).is_jan_serve


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (["/usr/bin/python3", "/x/.venv/bin/jan-serve", "serve"], True),
        (["/x/bin/jan-serve"], True),
        (["C:/x/jan-serve.exe", "serve"], True),
        (["python", "-m", "jan_serve", "serve"], True),
        (["python", "-X", "utf8", "-m", "jan_serve"], True),
        (["python", "-c", "pass", "-m", "jan_serve"], False),
        (["python", "-m", "http.server", "jan_serve"], False),
        (["vim", "notes", "jan-serve"], False),
        (["nc", "-l", "1337"], False),
        ([], False),
    ],
)
def test_our_command_lines(command: list[str], ours: bool) -> None:
    assert is_our_command(command) is ours


def test_of_two_starts_at_once_exactly_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests take ports of 127.0.0.1 at the same time, perhaps the one that is free here.
    host = "127.0.0.77" if sys.platform == "linux" else HOST

    def silent(host: str, port: int) -> None:
        """The winner closes at once and would not answer."""

    monkeypatch.setattr("jan_serve.cli.server.listen._ask_health", silent)

    def attempt(port: int, gate: threading.Barrier) -> socket.socket | None:
        gate.wait(60)
        try:
            return listen(host, port)
        except AddressUnavailable:
            return None

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            with listen(HOST, 0) as free:
                port = free.getsockname()[1]
            gate = threading.Barrier(2)
            socks = [task.result() for task in [pool.submit(attempt, port, gate) for _ in range(2)]]
            winners = [sock for sock in socks if sock is not None]
            for sock in winners:
                sock.close()
            assert len(winners) == 1


class RejectedInListen(socket.socket):
    """Rejected in listen(), as Linux may do with both of two sockets that were bound to a port at once."""

    rejections = 0

    def listen(self, backlog: int = 0, /) -> None:
        if RejectedInListen.rejections:
            RejectedInListen.rejections -= 1
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        super().listen(backlog)


@pytest.mark.parametrize("rejections", [1, 3])
def test_a_start_that_lost_to_another_that_lost_too_tries_again(
    rejections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.cli.server.listen._PAUSES_S", (0.0,) * 3)
    monkeypatch.setattr(RejectedInListen, "rejections", rejections)
    monkeypatch.setattr(socket, "socket", RejectedInListen)
    with listen(HOST, 0) as sock:
        assert sock.getsockname()[1] > 0
    assert RejectedInListen.rejections == 0


def test_a_port_that_stays_taken_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.server.listen._PAUSES_S", (0.0,) * 3)
    monkeypatch.setattr(RejectedInListen, "rejections", 4)
    monkeypatch.setattr(socket, "socket", RejectedInListen)
    with pytest.raises(AddressUnavailable, match="in use"):
        listen(HOST, 0)
