"""Workers that crash and servers that stop, over HTTP: the whole front with fake engines and real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.engines import Gate
from tests.support.fake_server import fake_server
from tests.support.processes import alive, wait_until, workers_of
from tests.support.raw_http import RawConnection, RawResponse, connect, get, post, post_bytes
from tests.support.served import Served

PATH = "/v1/completions"


def complete(url: str, prompt: str) -> RawResponse:
    """One completion, not streamed."""
    return post(url, PATH, {"prompt": prompt, "max_tokens": 1000})


def start_stream(url: str, connection: RawConnection, prompt: str) -> str:
    """Begin a streamed completion; the text of its first event with text."""
    body = {"prompt": prompt, "max_tokens": 10**6, "stream": True}
    connection.send(post_bytes(url, PATH, body))
    head = connection.read_until(b"\r\n\r\n")
    assert b"200 OK" in head
    while True:
        line = connection.read_until(b"\n")
        if line.startswith(b"data: {"):
            text: str = json.loads(line[6:])["choices"][0]["text"]
            if text:
                return text


def rest_of_stream(connection: RawConnection) -> list[str]:
    """The remaining data lines, until the server closes or the body ends."""
    data = connection.read_until(b"0\r\n\r\n")
    return [line[6:].strip() for line in data.decode().split("\n") if line.startswith("data: ")]


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


def text_of(response: RawResponse) -> str:
    """The completion's text."""
    assert response.status == 200, response.body
    text: str = response.json()["choices"][0]["text"]
    return text


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL"])
def test_a_crash_ends_the_stream_with_one_error_event_and_the_model_comes_back(
    tmp_path: Path, name: str
) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, "!stream 1000000 1ms")
            before = worker_of(server).pid
            os.kill(before, signal.Signals[f"SIG{name}"])
            events = rest_of_stream(connection)
        errors = [event for event in events if "error" in event]
        assert len(errors) == 1 and events[-1] == errors[0]
        assert json.loads(errors[0])["error"]["code"] == "engine_crashed"
        assert "[DONE]" not in events
        assert_no_harm(server, url)
        assert worker_of(server).pid != before


def test_a_request_right_after_an_idle_worker_dies_is_served(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        assert text_of(complete(url, "!say one")) == "one"
        for _ in range(2):
            os.kill(worker_of(server).pid, signal.SIGKILL)
            assert text_of(complete(url, "!say two")) == "two"


def test_a_crash_before_the_first_event_is_a_status_not_a_broken_stream(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        response = complete(url, "!die")
        assert 500 <= response.status < 600
        assert response.json()["error"]["code"] == "engine_crashed"
        assert_no_harm(server, url)


def test_a_model_that_crashes_at_load_is_given_up_and_others_are_served(tmp_path: Path) -> None:
    with fake_server(tmp_path, ("crash-on-load-ABRT", "fake")) as server:
        url = server.url()
        body: dict[str, Any] = {"prompt": "hello", "model": "crash-on-load-ABRT"}
        responses = [post(url, PATH, body) for _ in range(20)]
        assert {response.status for response in responses} == {422}
        assert {response.json()["error"]["code"] for response in responses} == {"invalid_model"}
        assert all("GGML_ASSERT" in response.json()["error"]["message"] for response in responses)
        assert not any("again" in response.json()["error"]["message"] for response in responses)
        assert server.log.count("loading crash-on-load-ABRT") == 3
        other = post(url, PATH, {"prompt": "!say fine", "model": "fake"})
        assert text_of(other) == "fine"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(tmp_path: Path, stream: bool) -> None:
    gate = Gate(tmp_path / "gate")
    with fake_server(tmp_path, parallel=1) as server:
        url = server.url()
        with connect(url) as connection:
            if stream:
                start_stream(url, connection, f"!gate {gate.path}")
            else:
                connection.send(post_bytes(url, PATH, {"prompt": f"!gate {gate.path}"}))
                wait_until(lambda: b'jan_serve_model_leases{model="fake"} 1.0' in get(url, "/metrics").body)
        assert text_of(complete(url, "!say next")) == "next"
        assert_no_harm(server, url)


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with fake_server(tmp_path) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, f"!gate {gate.path}")
            worker = worker_of(server).pid
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: get(url, "/health").status == 503)
            refused = complete(url, "hello")
            assert refused.status == 503
            assert "retry-after" in refused.headers
            assert refused.headers["connection"] == "close"
            gate.open()
            events = rest_of_stream(connection)
            assert events[-1] == "[DONE]"
            assert "error" not in "".join(events)
        assert server.wait() == 0
        assert not alive(worker)
        assert "Traceback" not in server.log


def test_what_runs_beyond_the_limit_gets_an_error_event(tmp_path: Path) -> None:
    with fake_server(tmp_path, drain_timeout_s=0.2) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, "!stream 1000000 5ms")
            worker = worker_of(server).pid
            server.process.send_signal(signal.SIGTERM)
            events = rest_of_stream(connection)
        assert json.loads(events[-1])["error"]["code"] == "draining"
        assert server.wait() == 0
        assert not alive(worker)
        assert "Traceback" not in server.log


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_at_once(tmp_path: Path, second: signal.Signals) -> None:
    with fake_server(tmp_path, drain_timeout_s=600) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, "!stream 1000000 5ms")
            worker = worker_of(server).pid
            server.process.send_signal(second)
            wait_until(lambda: get(url, "/health").status == 503)
            server.process.send_signal(second)
            assert server.wait(5) == 0
        assert not alive(worker)
        assert "Traceback" not in server.log


def test_a_server_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, "!stream 1000000 1ms")
            worker = worker_of(server).pid
            server.process.kill()
            server.wait()
            assert wait_until(lambda: not alive(worker), 2.0) < 2.0


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
    with fake_server(tmp_path) as server:
        url = server.url()
        with connect(url) as connection:
            start_stream(url, connection, "!stream 1000000 1ms")
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

        start = used()
        with pytest.raises(AssertionError):
            wait_until(lambda: used() - start > 0.1, 3.0)
