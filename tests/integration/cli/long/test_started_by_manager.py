"""A server that a service manager starts: it takes the passed socket and notifies when it is ready."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.activation import activated
from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.processes import wait_until
from tests.support.servers.served import Served, running, serving

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.name != "posix", reason="sockets are handed over on POSIX only"),
]

SERVE = (sys.executable, "-P", "-m", "jan_serve", "serve")


def configured(folder: Path, *lines: str) -> dict[str, str]:
    """Environment variables of a server with this configuration."""
    path = folder / "config.toml"
    path.write_text("\n".join(('data_dir = "data"', *lines)) + "\n", encoding="utf-8")
    return {"JAN_SERVE_CONFIG": str(path)}


def health(port: int) -> dict[str, object]:
    """The answer of /health."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as response:
        return json.load(response)


def ended_in_order(server: Served) -> None:
    """Stop it with SIGTERM, like a service manager."""
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "Traceback" not in server.log


def test_a_connection_waits_for_the_server_that_it_starts(tmp_path: Path, tiny_llama: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as sock,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        port = sock.getsockname()[1]
        # Like systemd: the first connection precedes the server.
        with socket.create_connection(("127.0.0.1", port), timeout=20) as first:
            first.sendall(
                f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
            )
            command = activated(sock.fileno(), [*SERVE, "--port", str(port), "--model", str(tiny_llama)])
            variables = configured(tmp_path) | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
            with running(tmp_path, command, variables, pass_fds=(sock.fileno(),)) as server:
                assert server.url() == f"http://127.0.0.1:{port}"
                with first.makefile("rb") as answer:
                    assert answer.readline().startswith(b"HTTP/1.1 200")
                assert health(port)["pid"] == server.process.pid
                assert "warning" not in server.log
                assert manager.recv(1024).startswith(b"READY=1")
                assert manager.recv(1024) == b"WATCHDOG=1"
                ended_in_order(server)
                notified = [manager.recv(1024)]
                while not notified[-1].startswith(b"STOPPING=1"):
                    notified.append(manager.recv(1024))
        # The socket belongs to the manager and outlives the server: the next connection starts it again.
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_it_ends_when_nobody_asks_and_starts_again(tmp_path: Path, tiny_llama: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        flags = ("--port", str(port), "--ttl-s", "0", "--idle-exit-s", "1")
        models = ("--models-dir", str(tiny_llama.parent))
        command = activated(sock.fileno(), [*SERVE, *flags, *models])
        variables = configured(tmp_path)
        body = json.dumps({"model": "tiny-llama", "prompt": "a", "max_tokens": 2}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions", body, {"content-type": "application/json"}
        )
        for _ in range(2):
            with running(tmp_path, command, variables, pass_fds=(sock.fileno(),)) as server:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert answer.status == 200
                assert server.wait(30) == 0
                assert "stopping until the next connection" in server.log


def test_an_address_that_the_settings_do_not_know(tmp_path: Path, tiny_llama: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        command = activated(sock.fileno(), [*SERVE, "--port", "1", "--model", str(tiny_llama)])
        with running(tmp_path, command, configured(tmp_path), pass_fds=(sock.fileno(),)) as server:
            assert server.url() == f"http://127.0.0.1:{port}"
            wait_until(lambda: f"the service manager listens on 127.0.0.1 port {port}" in server.log)
            assert health(port)["status"] == "ok"
            ended_in_order(server)


def test_others_are_not_served_without_a_key(tmp_path: Path, tiny_llama: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as sock:
        command = activated(sock.fileno(), [*SERVE, "--model", str(tiny_llama)])
        with running(tmp_path, command, configured(tmp_path), pass_fds=(sock.fileno(),)) as server:
            assert server.wait() == 2
        assert "the service manager listens on 0.0.0.0" in server.log


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="needs systemd-socket-activate")
def test_systemds_own_activation(tmp_path: Path, tiny_llama: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    serve = [
        sys.executable,
        "-P",
        "-m",
        "jan_serve",
        "serve",
        "--port",
        str(port),
        "--model",
        str(tiny_llama),
    ]
    passed = [f"--setenv={name}={value}" for name, value in configured(tmp_path).items()]
    command = ["systemd-socket-activate", f"--listen=127.0.0.1:{port}", *passed, *serve]
    with running(tmp_path, command) as server:
        wait_until(lambda: "Listening on" in server.log)
        assert health(port)["pid"] == server.process.pid
        ended_in_order(server)


def test_the_log_file_is_there_after_the_server(tmp_path: Path, tiny_llama: Path) -> None:
    with serving(tmp_path, "--port", "0", "--model", str(tiny_llama), "--log-level", "debug") as server:
        health(int(server.url().rsplit(":", 1)[1]))
        ended_in_order(server)
    written = (tmp_path / "data" / "logs" / "server.log").read_text(encoding="utf-8")
    assert "stopping: running requests have 30 s" in written
