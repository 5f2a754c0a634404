"""DistServe with real servers: one computes the prompt, the other one the answer."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.clients.raw_http import get, post
from tests.support.processes import wait_until
from tests.support.servers.proxied import member, nodes_of, proxying
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

LONG = "Please remember: " + "the quick brown fox jumps over the lazy dog. " * 60


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Served, Served]]:
    folder = tmp_path_factory.mktemp("distserve")
    with (
        proxying(folder, "--serving-strategy", "DistServe") as proxy,
        member(folder / "p", proxy.url(), "--role", "prefill") as prefill,
        member(folder / "d", proxy.url(), "--role", "decode") as decode,
    ):
        yield proxy.url(), prefill, decode


def body(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "jan-tiny", "messages": messages, "temperature": 0, "max_tokens": 16, **fields}


def requests_of(proxy: str) -> dict[str, int]:
    return {node["role"]: node["requests"] for node in nodes_of(proxy)}


def kept(server: Served) -> float:
    page = get(server.url(), "/metrics").body.decode()
    lines = [line for line in page.splitlines() if line.startswith("jan_serve_engine_states{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def text_of(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return answer.json()["choices"][0]["message"]["content"]


def test_warm_up_links_the_nodes_once(fleet: tuple[str, Served, Served]) -> None:
    for _ in range(2):
        assert post(fleet[0], "/distserve/connection_warmup", {}).body == b'{"SUCCESS":true}'
    wait_until(lambda: "linked with" in fleet[1].log)
    assert fleet[1].log.count("linked with") == 1


def test_a_long_prompt_is_computed_by_one_and_answered_by_the_other(
    fleet: tuple[str, Served, Served],
) -> None:
    proxy, prefill, decode = fleet
    before = requests_of(proxy)
    expected = text_of(post(decode.url(), "/lmdeploy/v1/chat/completions", body("1 " + LONG)))
    assert text_of(post(proxy, "/v1/chat/completions", body("1 " + LONG))) == expected
    streamed = post(proxy, "/v1/chat/completions", body("2 " + LONG, stream=True))
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    after = requests_of(proxy)
    assert after["prefill"] == before["prefill"] + 2
    wait_until(lambda: kept(prefill) == 0 and kept(decode) == 0)
    assert post(proxy, "/distserve/gc", {}).json() == {"SUCCESS": True, "freed": 0}


def test_a_completion_goes_the_same_way(fleet: tuple[str, Served, Served]) -> None:
    proxy, _, decode = fleet
    wanted = {"model": "jan-tiny", "prompt": "3 " + LONG, "temperature": 0, "max_tokens": 8}
    expected = post(decode.url(), "/lmdeploy/v1/completions", wanted).json()["choices"][0]["text"]
    assert post(proxy, "/v1/completions", wanted).json()["choices"][0]["text"] == expected


def test_a_short_prompt_is_not_moved(fleet: tuple[str, Served, Served]) -> None:
    before = requests_of(fleet[0])
    assert text_of(post(fleet[0], "/v1/chat/completions", body("Hello!")))
    assert requests_of(fleet[0])["prefill"] == before["prefill"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_clients_cannot_name_a_state(fleet: tuple[str, Served, Served], path: str) -> None:
    crafted: dict[str, Any] = {
        "remote_engine_id": fleet[1].url(),
        "remote_session_id": 1,
        "remote_block_ids": [],
    }
    answer = post(fleet[0], path, body("Hi", prompt="Hi", migration_request=crafted))
    assert answer.status == 400
    assert "only the proxy" in answer.json()["message"]


def test_a_refused_prompt_is_the_clients_error(fleet: tuple[str, Served, Served]) -> None:
    answer = post(fleet[0], "/v1/chat/completions", body(LONG * 400))
    assert answer.status == 400
    assert "context" in answer.json()["message"]
    wait_until(lambda: kept(fleet[1]) == 0)


def test_without_a_prefill_node_the_client_is_told_to_wait(fleet: tuple[str, Served, Served]) -> None:
    fleet[1].process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(nodes_of(fleet[0])) == 1)
    answer = post(fleet[0], "/v1/chat/completions", body("4 " + LONG))
    assert answer.status == 503
    assert "prefill" in answer.json()["message"]
    assert answer.headers["retry-after"]
