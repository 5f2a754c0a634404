"""`jan-serve serve` as a process, and its log file."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.ports import held_port
from tests.support.processes import wait_until
from tests.support.servers.served import Served, serving

__all__ = ["model_folder", "tiny_llama"]

pytestmark = pytest.mark.integration


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One JSON request; the parsed answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_banner_answer_and_orderly_end(tiny_llama: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--model", str(tiny_llama)) as server:
        url = server.url()
        wait_until(lambda: "tiny-llama (as configured)" in server.log)
        wait_until(lambda: f"curl {url}/v1/chat/completions" in server.log)
        assert ask(url, "/health")["pid"] == server.process.pid
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
        answer = ask(url, "/v1/chat/completions", body)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        workers = psutil.Process(server.process.pid).children(recursive=True)
        assert workers
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.log
        wait_until(lambda: not any(worker.is_running() for worker in workers))


def test_a_start_that_fails_while_a_model_loads_says_so_alone(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['opentelemetry.exporter'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    flags = ("--port", "0", "--model", str(tiny_llama), "--otel-endpoint", "http://127.0.0.1:9")
    with serving(tmp_path, *flags) as server:
        assert server.wait() == 2
    assert "pip install 'jan-serve[otel]'" in server.log
    assert not [line for line in server.lines if "ERROR" in line or "SIGKILL" in line]


def test_the_model_that_is_expected_loads_before_the_first_request(tiny_llama: Path, tmp_path: Path) -> None:
    for flags, loaded in ((("--model", str(tiny_llama)), "tiny-llama"), ((), "jan-tiny")):
        with serving(tmp_path, "--port", "0", *flags) as server:
            wait_until(lambda server=server, loaded=loaded: f"{loaded} is ready" in server.log)
    keep_for_later(tiny_llama, tmp_path)
    with serving(tmp_path, "--port", "0") as server:
        ask(server.url(), "/health")
        assert "loading" not in server.log


def keep_for_later(model: Path, home: Path) -> None:
    """In the models folder: a server that begins here loads nothing before a request names it."""
    folder = home / "data" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(model, folder / "own.gguf")


def test_a_second_start_reports_that_it_already_runs(tiny_llama: Path, tmp_path: Path) -> None:
    with (
        held_port() as port,
        serving(tmp_path, "--port", str(port), "--model", str(tiny_llama)) as first,
    ):
        first.url()
        with serving(tmp_path, "--port", str(port)) as second:
            assert second.wait() == 0
        running = f"jan-serve is already running on port {port} (pid {first.process.pid})"
        assert second.lines == [f"{running}."]
        stop = "Stop that server first, or choose another port with --port."
        load = f"`jan-serve load jan-tiny --url http://127.0.0.1:{port}` loads the model there."
        (tmp_path / "other.toml").write_text("")
        for flags, hint in (
            (("--model", "jan-tiny"), f"{load} {stop}"),
            (("--model", str(tiny_llama)), stop),
            (("--n-ctx", "512"), stop),
            (("--config", "other.toml"), stop),
        ):
            with serving(tmp_path, "--port", str(port), *flags) as third:
                assert third.wait() == 2
            assert third.lines == [f"error: {running}: {flags[0]} of this command cannot change it", hint]


def test_a_port_of_another_program(tmp_path: Path, tiny_llama: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with serving(tmp_path, "--port", str(port), "--model", str(tiny_llama)) as server:
            assert server.wait() == 2
        assert server.lines[0].startswith(f"error: port {port} is in use by ")
        assert len(server.lines) == 2


def test_a_further_port_serves_the_same(tmp_path: Path, tiny_llama: Path) -> None:
    with held_port() as port, serving(tmp_path, "--port", "0", "--also-listen", str(port)) as server:
        server.url()
        wait_until(lambda: f"also    http://127.0.0.1:{port}" in server.log)
        assert ask(f"http://127.0.0.1:{port}", "/api/version")["version"]
        assert ask(server.url(), "/health")["pid"] == ask(f"http://127.0.0.1:{port}", "/health")["pid"]
        with serving(tmp_path, "--port", "0", "--also-listen", str(port)) as second:
            assert second.wait() == 2
        assert second.lines == [
            f"error: also_listen: port {port} is in use by jan-serve (pid {server.process.pid})",
            "Stop that program, or leave out --also-listen.",
        ]


def test_of_two_starts_at_once_exactly_one_serves(tiny_llama: Path, tmp_path: Path) -> None:
    keep_for_later(tiny_llama, tmp_path)
    for _ in range(3):
        with held_port() as port, contextlib.ExitStack() as stack:
            flags = ("--port", str(port), "--n-ctx", "512")
            one, other = (stack.enter_context(serving(tmp_path, *flags)) for _ in range(2))
            wait_until(lambda one=one, other=other: ended(one) + ended(other) > 0)
            winner, loser = (other, one) if ended(one) else (one, other)
            assert loser.wait() == 2
            assert "already running" in loser.log
            assert ask(winner.url(), "/health")["pid"] == winner.process.pid


def ended(server: Served) -> bool:
    return server.process.poll() is not None


def test_wrong_settings_start_nothing(tmp_path: Path) -> None:
    for flags, words in (
        (("--host", "0.0.0.0"), "--api-key"),
        (("--model", "absent.gguf"), "does not exist"),
        (("--n-ctx", "x"), "--n-ctx: n_ctx"),
        (("--device", "nonsense"), "there is no 'nonsense'; llama.cpp has"),
    ):
        with serving(tmp_path, "--port", "0", *flags) as server:
            assert server.wait() == 2
        assert words in server.log
        assert "Traceback" not in server.log


LIMIT = 64 * 1024


def test_many_requests(tmp_path: Path, tiny_llama: Path) -> None:
    flags = ("--log-max-bytes", str(LIMIT), "--log-files", "2", "--log-level", "debug")
    with serving(tmp_path, "--port", "0", "--model", str(tiny_llama), *flags) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url()).netloc, timeout=60)
        for _ in range(900):
            connection.request("GET", "/v1/models/absent")
            with connection.getresponse() as answer:
                answer.read()
        connection.close()
        folder = tmp_path / "data" / "logs"
        sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix != ".lock"}
        assert sorted(sizes) == ["server.log", "server.log.1"]
        assert all(size <= LIMIT for size in sizes.values())
        # The server wrote more than it kept: it deleted files.
        assert len(server.log) > 2 * LIMIT
        log = folder / "server.log"
        wait_until(lambda: log.read_text(encoding="utf-8").split()[-1] == server.lines[-1].split()[-1])

        with serving(tmp_path, "--port", "0", "--model", str(tiny_llama)) as second:
            second.url()
            wait_until(lambda: "no log file: another server writes to" in second.log)
