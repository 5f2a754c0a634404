"""Workers that die and servers that receive signals, with real processes and llama.cpp."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import openai
import pytest

from tests.integration.http.support import (
    COMPLETIONS,
    ENDLESS,
    GREEDY,
    LONG_CTX,
    Healthy,
    assert_clean_log,
    assert_one_error_at_the_end,
    complete,
    error_of,
    first_text,
    payloads,
    rest_of_stream,
    send_stream,
    serving_models,
    start_stream,
    text_of,
    texts,
    workers_of,
)
from tests.support.clients.raw_http import connect, get, post, post_bytes
from tests.support.ports import held_port
from tests.support.processes import alive, wait_until
from tests.support.servers.served import Served, serving

pytestmark = pytest.mark.integration

CANARY: Final = "zebra-quartz"
LONG: Final = ("--n-ctx", str(LONG_CTX), "--parallel", "4")
NO_RETRY: Final = ("--retry", "0")


def worker_of(server: Served) -> int:
    (worker,) = workers_of(server)
    return worker.pid


def test_answers_go_on_over_the_death_of_their_worker(tmp_path: Path, exact_llama: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 0.8, "seed": 3},
        {"temperature": 0.8, "seed": 4, "stop": ["never this"], "logprobs": 1, "repeat_penalty": 1.1},
    ]
    flags = (*LONG, "--sse-ping-s", "0.2")
    with serving_models(tmp_path, exact_llama, flags=flags) as served:
        healthy = Healthy(served)
        wanted: list[dict[str, Any]] = [
            {**GREEDY, "prompt": CANARY, "max_tokens": 4000, "logit_bias": {"0": -100}, **kind}
            for kind in kinds
        ]
        whole = [text_of(post(healthy.url, COMPLETIONS, each)) for each in wanted]
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(healthy.url)) for _ in wanted]
            for connection, each in zip(connections, wanted, strict=True):
                send_stream(connection, healthy.url, **each)
            begun = [first_text(connection) for connection in connections]
            os.kill(worker_of(served), signal.SIGKILL)
            for connection, text, expected in zip(connections, begun, whole, strict=True):
                body = connection.read_until(b"0\r\n\r\n")
                assert b"\n:" in body  # a comment in the pause
                assert text + texts(payloads(body)) == expected
                assert payloads(body)[-1] == "[DONE]"
        assert get(healthy.url, "/health").json()["open_requests"] == 0
        healthy.check(CANARY)


@pytest.mark.parametrize("name", ["SEGV", "KILL"])
def test_a_dead_worker_is_one_error_and_is_replaced(tmp_path: Path, exact_llama: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    with serving_models(tmp_path, exact_llama, flags=(*LONG, *NO_RETRY)) as served:
        healthy = Healthy(served)
        first = worker_of(served)
        with connect(healthy.url) as connection:
            start_stream(connection, healthy.url, CANARY, **ENDLESS)
            os.kill(first, number)
            assert_one_error_at_the_end(rest_of_stream(connection), "engine_crashed")
        # Without intervention a new worker serves the next request.
        assert text_of(complete(healthy.url, "hello", max_tokens=8)) == healthy.golden
        second = worker_of(served)
        assert second != first
        os.kill(second, number)
        wait_until(lambda: f"worker {second} of exact-llama ended" in served.log)
        assert text_of(complete(healthy.url, "hello", max_tokens=8)) == healthy.golden
        assert worker_of(served) != second
        assert f"SIG{name}" in served.log
        healthy.check(CANARY)


def test_openais_client_sees_the_code_of_a_crash(tmp_path: Path, exact_llama: Path) -> None:
    with serving_models(tmp_path, exact_llama, flags=(*LONG, *NO_RETRY)) as served:
        healthy = Healthy(served)
        options: dict[str, Any] = {"base_url": f"{healthy.url}/v1", "api_key": "any", "max_retries": 0}
        with openai.OpenAI(**options) as client:
            stream = client.chat.completions.create(
                model="exact-llama",
                messages=[{"role": "user", "content": CANARY}],
                max_tokens=ENDLESS["max_tokens"],
                extra_body={"ignore_eos": True},
                stream=True,
            )
            with pytest.raises(openai.APIError) as caught:
                for place, _ in enumerate(stream):
                    if place == 3:
                        os.kill(worker_of(served), signal.SIGSEGV)
        assert caught.value.code == "engine_crashed"
        healthy.check(CANARY)


def test_a_model_that_goes_on_crashing_is_given_up_and_others_are_served(
    tmp_path: Path, exact_llama: Path, tiny_bert: Path
) -> None:
    ids = random.Random(22).choices(range(100, 250), k=LONG_CTX // 2)
    long = {"prompt": ids, "max_tokens": LONG_CTX // 2 - 100, "ignore_eos": True}
    with serving_models(tmp_path, exact_llama, tiny_bert, flags=(*LONG, *NO_RETRY)) as served:
        url = served.url()
        for crashes in range(3):
            text_of(complete(url, "hello", max_tokens=2))
            with connect(url) as connection:
                connection.send(post_bytes(url, COMPLETIONS, long))
                wait_until(lambda: get(url, "/health").json()["open_requests"] == 1)
                wait_until(lambda: b'leases{model="exact-llama"} 1.0' in get(url, "/metrics").body)
                os.kill(worker_of(served), signal.SIGABRT)
                response = connection.response()
            assert (response.status, error_of(response)["code"]) == (503, "engine_crashed"), crashes
            assert int(response.headers["retry-after"]) >= 1
        for _ in range(20):
            response = complete(url, CANARY)
            assert (response.status, error_of(response)["code"]) == (503, "model_failed")
            assert "SIGABRT" in error_of(response)["message"]
            assert 30 < int(response.headers["retry-after"]) <= 60
        assert get(url, "/health").json()["state"] == "degraded"
        assert get(url, "/ready").status == 503
        assert post(url, "/v1/embeddings", {"input": "hello", "model": "tiny-bert"}).status == 200
        assert len(workers_of(served)) == 1
        assert_clean_log(served, CANARY)


def test_a_damaged_file_is_refused_each_time_and_others_are_served(tmp_path: Path, exact_llama: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(exact_llama.read_bytes()[:40_000])
    with serving_models(tmp_path, exact_llama, damaged, flags=("--n-ctx", "128")) as served:
        healthy = Healthy(served)
        for _ in range(20):
            error = error_of(complete(healthy.url, CANARY, model="damaged"))
            assert error["code"] == "invalid_model"
            assert str(tmp_path) not in error["message"]
        healthy.check(CANARY)


def test_sigterm_lets_streams_end_and_refuses_new_requests(tmp_path: Path, exact_llama: Path) -> None:
    flags = (*LONG, "--drain-timeout-s", "300")
    with serving_models(tmp_path, exact_llama, flags=flags) as served, contextlib.ExitStack() as stack:
        url = served.url()
        with connect(url) as endless:  # it holds the server up until the client leaves
            start_stream(endless, url, CANARY, **ENDLESS)
            streams = [stack.enter_context(connect(url)) for _ in range(2)]
            for connection in streams:
                start_stream(connection, url, CANARY, max_tokens=1500)
            worker = worker_of(served)
            served.process.send_signal(signal.SIGTERM)
            wait_until(lambda: get(url, "/health").status == 503)
            assert get(url, "/health").json()["status"] == "draining"
            refused = complete(url, CANARY)
            assert (refused.status, error_of(refused)["code"]) == (503, "draining")
            assert refused.headers["connection"] == "close"
            assert int(refused.headers["retry-after"]) >= 1
            for connection in streams:
                events = rest_of_stream(connection)
                assert events[-1] == "[DONE]"
                assert "error" not in "".join(events)
        assert served.wait() == 0
        assert not alive(worker)
        assert_clean_log(served, CANARY)


def test_sigterm_ends_streams_with_an_error_when_their_time_is_over(
    tmp_path: Path, exact_llama: Path
) -> None:
    flags = (*LONG, "--drain-timeout-s", "1")
    with serving_models(tmp_path, exact_llama, flags=flags) as served, contextlib.ExitStack() as stack:
        url = served.url()
        streams = [stack.enter_context(connect(url)) for _ in range(3)]
        for connection in streams:
            start_stream(connection, url, CANARY, **ENDLESS)
        served.process.send_signal(signal.SIGTERM)
        for connection in streams:
            assert_one_error_at_the_end(rest_of_stream(connection), "draining")
        assert served.wait() == 0
        assert_clean_log(served, CANARY)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(tmp_path: Path, exact_llama: Path, number: signal.Signals) -> None:
    with serving_models(tmp_path, exact_llama, flags=(*LONG, "--drain-timeout-s", "600")) as served:
        url = served.url()
        with connect(url) as connection:
            start_stream(connection, url, CANARY, **ENDLESS)
            worker = worker_of(served)
            served.process.send_signal(number)
            wait_until(lambda: get(url, "/health").status == 503)
            served.process.send_signal(number)
            assert served.wait() == 0
        assert not alive(worker)
        assert_clean_log(served, CANARY)


def test_a_killed_server_leaves_no_worker_and_its_port_is_free(tmp_path: Path, exact_llama: Path) -> None:
    with held_port() as port:
        flags = (*LONG, "--port", str(port))
        with serving_models(tmp_path, exact_llama, flags=flags) as served:
            healthy = Healthy(served)
            with connect(healthy.url) as connection:
                start_stream(connection, healthy.url, CANARY, **ENDLESS)
                worker = worker_of(served)
                if sys.platform == "linux":  # the kernel ends it, though it can do nothing itself
                    os.kill(worker, signal.SIGSTOP)
                served.process.kill()
                served.wait()
                wait_until(lambda: not alive(worker))
        with serving_models(tmp_path, exact_llama, flags=flags) as again:
            assert again.url() == healthy.url
            assert Healthy(again).golden == healthy.golden


def test_a_second_start_does_not_disturb_the_first(tmp_path: Path, exact_llama: Path) -> None:
    with serving_models(tmp_path, exact_llama, flags=LONG) as served:
        healthy = Healthy(served)
        with connect(healthy.url) as connection:
            start_stream(connection, healthy.url, CANARY, max_tokens=300)
            port = str(urlsplit(healthy.url).port)
            with serving(tmp_path, "--port", port, "--model", str(exact_llama)) as second:
                assert second.wait() == 2
            assert f"already running on port {port}" in second.log
            assert_clean_log(second)
            assert rest_of_stream(connection)[-1] == "[DONE]"
        healthy.check(CANARY)
