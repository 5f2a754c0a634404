"""The control plane over HTTP: abort, sleep, wake-up, termination."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.http.support import (
    ENDLESS,
    GREEDY,
    LONG_CTX,
    complete,
    serving_models,
    text_of,
    workers_of,
)
from tests.support.clients.raw_http import RawResponse, get, post
from tests.support.processes import wait_until
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

FLAGS = ("--n-ctx", str(LONG_CTX), "--parallel", "1", "--enable-abort-handling")
GO_ON: dict[str, Any] = {"prompt": "go on", "temperature": 0, **ENDLESS}
ASLEEP = "Engine is sleeping; call POST /wakeup before inference (e.g. tags=weights&tags=kv_cache)."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[Served]:
    """One at a time, so that a second request waits."""
    with serving_models(tmp_path_factory.mktemp("control"), exact_llama, flags=FLAGS) as served:
        yield served


@pytest.fixture(autouse=True)
def awake(server: Served) -> Generator[None]:
    """A failed test leaves no sleeping server to the next one."""
    yield
    command(server.url(), "/wakeup")


def command(url: str, path: str, status: int = 200) -> str:
    """A POST without a body."""
    response = httpx.post(url + path, timeout=60)
    assert response.status_code == status, response.text
    return response.text


def is_sleeping(url: str) -> bool:
    return get(url, "/is_sleeping").json()["is_sleeping"]


class Background:
    """A request in its own thread."""

    def __init__(self, url: str, body: dict[str, Any], path: str = "/lmdeploy/generate") -> None:
        self.first = threading.Event()
        self.lines: list[str] = []
        self.status = 0
        self._thread = threading.Thread(target=self._run, args=(url + path, body))
        self._thread.start()

    def _run(self, url: str, body: dict[str, Any]) -> None:
        with httpx.Client(timeout=60) as client, client.stream("POST", url, json=body) as response:
            self.status = response.status_code
            for line in response.iter_lines():
                self.lines.append(line)
                self.first.set()
        self.first.set()

    def end(self) -> list[str]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return [line for line in self.lines if line]


def ended_by_abort(lines: list[str]) -> dict[str, Any]:
    assert lines[-1] == "data: [DONE]"
    last = json.loads(lines[-2].removeprefix("data: "))
    assert (last["text"], last["output_ids"]) == ("", [])
    assert last["meta_info"]["finish_reason"] == {"type": "abort"}
    return last


def test_a_stream_is_aborted_and_its_session_is_free(server: Served) -> None:
    url = server.url()
    running = Background(url, {**GO_ON, "stream": True, "session_id": 5})
    assert running.first.wait(60)
    assert "occupied" in post(url, "/lmdeploy/generate", {**GO_ON, "session_id": 5}).json()["message"]
    assert post(url, "/abort_request", {"session_id": 5}).status == 200
    last = ended_by_abort(running.end())
    assert 0 < last["meta_info"]["completion_tokens"] < ENDLESS["max_tokens"]
    again = post(url, "/lmdeploy/generate", {**GO_ON, "max_tokens": 1, "session_id": 5})
    assert again.status == 200


def test_all_requests_are_aborted_those_that_wait_too(server: Served) -> None:
    url = server.url()
    running = Background(url, {**GO_ON, "stream": True})
    assert running.first.wait(60)
    waiting = [Background(url, {**GO_ON, "stream": False, "session_id": 60 + i}) for i in range(3)]

    wait_until(lambda: _waiting(url) == 3)
    assert post(url, "/lmdeploy/generate", {**GO_ON, "session_id": 60}).status == 400
    assert post(url, "/lmdeploy/abort_request", {"abort_all": True}).status == 200
    ended_by_abort(running.end())
    for each in waiting:
        reply = json.loads("".join(each.end()))
        assert each.status == 200
        assert reply["meta_info"]["finish_reason"] == {"type": "abort"}
        assert (reply["text"], reply["output_ids"]) == ("", [])
    assert text_of(complete(url, max_tokens=2))


def _waiting(url: str) -> float:
    page = get(url, "/metrics").body.decode()
    lines = [line for line in page.splitlines() if line.startswith("jan_serve_model_leases{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines) - 1


@pytest.mark.parametrize("body", [{"session_id": 999_999}, {}, {"session_id": None}])
def test_an_unknown_session_is_not_found(server: Served, body: dict[str, Any]) -> None:
    response = post(server.url(), "/abort_request", body)
    assert response.status == 400
    assert response.json()["message"] == f"Session {body.get('session_id', -1)} not found."


def test_sleep_gives_the_memory_back_and_wakeup_takes_it(server: Served) -> None:
    url = server.url()
    golden = text_of(complete(url, "hello", max_tokens=8))
    before = [worker.pid for worker in workers_of(server)]
    assert len(before) == 1 and not is_sleeping(url)
    assert command(url, "/sleep") == ""
    assert is_sleeping(url)
    assert workers_of(server) == []
    assert (get(url, "/health").status, get(url, "/health").json()["state"]) == (200, "asleep")
    assert (get(url, "/lmdeploy/health").status, get(url, "/lmdeploy/health").json()["status"]) == (
        200,
        "sleeping",
    )
    assert (get(url, "/ready").status, get(url, "/ready").json()["ready"]) == (503, False)
    for path, body in (
        ("/lmdeploy/generate", {"prompt": "x"}),
        ("/lmdeploy/v1/completions", {"model": "exact-llama", "prompt": "x"}),
        ("/lmdeploy/v1/chat/completions", {"model": "exact-llama", "messages": "x"}),
        ("/v1/completions", {"prompt": "x"}),
    ):
        assert_asleep(post(url, path, body))
    command(url, "/wakeup?tags=weights")
    assert is_sleeping(url)
    assert_asleep(post(url, "/lmdeploy/generate", {"prompt": "x", "stream": True}))
    command(url, "/wakeup?tags=weights&tags=nonsense")
    assert is_sleeping(url)
    command(url, "/wakeup?tags=kv_cache")
    assert not is_sleeping(url)
    assert get(url, "/ready").status == 200
    assert get(url, "/lmdeploy/health").json()["status"] == "healthy"
    after = [worker.pid for worker in workers_of(server)]
    assert len(after) == 1 and after != before
    assert text_of(complete(url, "hello", max_tokens=8)) == golden


def assert_asleep(response: RawResponse) -> None:
    assert response.status == 503
    body = response.json()
    assert (body.get("message") or body["error"]["message"]) == ASLEEP


@pytest.mark.parametrize("level", [1, 2])
def test_the_prefix_cache_outlives_level_1_only(server: Served, level: int) -> None:
    url = server.url()
    prompt = f"level {level}: " + "a long prompt that is worth to be kept " * 12
    fields = {"max_tokens": 4, **GREEDY}
    first = complete(url, prompt, **fields).json()
    command(url, f"/lmdeploy/sleep?level={level}")
    command(url, "/lmdeploy/wakeup")
    again = complete(url, prompt, **fields).json()
    assert again["choices"] == [{**first["choices"][0]}]
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 100 if level == 1 else cached == 0


def test_sleep_aborts_what_runs(server: Served) -> None:
    url = server.url()
    running = Background(url, {**GO_ON, "stream": True})
    assert running.first.wait(60)
    other = Background(url, {"prompt": "x", **ENDLESS, "stream": False}, path="/v1/completions")
    wait_until(lambda: _waiting(url) == 1)
    command(url, "/sleep?level=2")
    ended_by_abort(running.end())
    assert ASLEEP in "".join(other.end()) and other.status == 503
    assert workers_of(server) == []
    command(url, "/wakeup")
    assert not is_sleeping(url)


def test_sleep_and_wakeup_may_come_twice(server: Served) -> None:
    url = server.url()
    command(url, "/wakeup?tags=weights")
    assert not is_sleeping(url)
    command(url, "/sleep")
    command(url, "/sleep?level=2")
    assert is_sleeping(url)
    command(url, "/wakeup")
    command(url, "/wakeup?tags=kv_cache")
    assert not is_sleeping(url)
    assert text_of(complete(url, max_tokens=2))


def test_termination_and_disabled_aborts(exact_llama: Path, tmp_path: Path) -> None:
    with serving_models(
        tmp_path, exact_llama, flags=("--n-ctx", "512", "--allow-terminate-by-client")
    ) as served:
        url = served.url()
        refused = post(url, "/abort_request", {"abort_all": True})
        assert refused.status == 501
        assert refused.body == (
            b"This server does not support abort requests. Enable with --enable-abort-handling flag."
        )
        assert text_of(complete(url, max_tokens=2))
        assert get(url, "/lmdeploy/terminate").status == 200
        assert served.wait() == 0
