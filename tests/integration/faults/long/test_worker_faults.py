"""Workers that crash and servers that stop, over HTTP: the whole front with fake engines and real signals."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import psutil

from tests.integration.http.support import COMPLETIONS, complete, rest_of_stream, start_stream, text_of
from tests.support.clients.raw_http import connect, get, post
from tests.support.processes import wait_until, workers_of
from tests.support.servers.fake_server import fake_server
from tests.support.servers.served import Served


def worker_of(server: Served) -> psutil.Process:
    """The one worker process."""
    (worker,) = workers_of(server.process.pid)
    return worker


def assert_no_harm(server: Served, url: str) -> None:
    """Checks after every fault: same process, healthy, answers, no traceback."""
    assert server.process.poll() is None
    assert get(url, "/health").status == 200
    assert text_of(complete(url, "!say golden")) == "golden"
    assert "Traceback" not in server.log


def test_a_model_that_crashes_at_load_is_given_up_and_others_are_served(tmp_path: Path) -> None:
    with fake_server(tmp_path, ("crash-on-load-ABRT", "fake")) as server:
        url = server.url()
        body: dict[str, Any] = {"prompt": "hello", "model": "crash-on-load-ABRT"}
        responses = [post(url, COMPLETIONS, body) for _ in range(20)]
        assert {response.status for response in responses} == {422}
        assert {response.json()["error"]["code"] for response in responses} == {"invalid_model"}
        assert all("GGML_ASSERT" in response.json()["error"]["message"] for response in responses)
        assert not any("again" in response.json()["error"]["message"] for response in responses)
        assert server.log.count("loading crash-on-load-ABRT") == 3
        other = post(url, COMPLETIONS, {"prompt": "!say fine", "model": "fake"})
        assert text_of(other) == "fine"


def test_there_is_one_listening_socket_in_all(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        assert text_of(complete(url, "!say hi")) == "hi"
        worker = worker_of(server)
        own = [c for c in psutil.Process(server.process.pid).net_connections("all") if c.status == "LISTEN"]
        assert [f"http://{c.laddr.ip}:{c.laddr.port}" for c in own] == [url]
        # The rest is the pipe, which some event loops make of unnamed socket pairs.
        assert [c for c in worker.net_connections("all") if c.laddr or c.family != socket.AF_UNIX] == []


def test_health_answers_while_a_worker_is_stuck(tmp_path: Path) -> None:
    with fake_server(tmp_path, retry=0) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(connection, url, "!stream 1000000 1ms", max_tokens=10**6)
            worker = worker_of(server)
            worker.suspend()
            for _ in range(5):
                assert get(url, "/health").status == 200
            worker.kill()
            assert "engine_crashed" in rest_of_stream(connection)[-1]
        assert_no_harm(server, url)


def test_an_idle_server_uses_no_processor_time(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        complete(url, "hello")
        processes = [psutil.Process(server.process.pid), worker_of(server)]
        wait_until(lambda: b"jan_serve_engine_generated_tokens_total" in get(url, "/metrics").body)

        def used() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        def is_idle() -> bool:
            """For three seconds; what the first answer left to do is over after some of them."""
            start = used()
            with contextlib.suppress(AssertionError):
                wait_until(lambda: used() - start > 0.1, 3.0)
                return False
            return True

        assert any(is_idle() for _ in range(10))
