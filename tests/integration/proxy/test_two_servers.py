"""Two real servers behind a real proxy: answers, cached prefixes, a server that dies, one that leaves."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.raw_http import post
from tests.support.processes import wait_until
from tests.support.servers.proxied import member, nodes_of, proxying
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
_CHANGING = re.compile(rb'"(?:created)":\d+|"id":"[^"]*"|"[a-z_]*(?:_ms|_second)":[0-9.e+-]+')
_CACHE = re.compile(rb'"(?:cached_tokens|cache_n|prompt_n)":\d+')


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Served, Served]]:
    folder = tmp_path_factory.mktemp("fleet")
    with (
        proxying(folder) as proxy,
        member(folder / "a", proxy.url()) as first,
        member(folder / "b", proxy.url()) as second,
    ):
        yield proxy.url(), first, second


def request(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "jan-tiny", "messages": messages, "temperature": 0, "max_tokens": 24, **fields}


def same(content: bytes) -> bytes:
    """Without ids, times and what was cached, which differ between two calls of one server too."""
    return _CACHE.sub(b"", _CHANGING.sub(b"", content))


@pytest.mark.parametrize("text", ["Hello!", "What is 12 + 30?", "Wer bist du? äöü 🦙"])
def test_answers_are_those_of_one_server_byte_for_byte(fleet: tuple[str, Served, Served], text: str) -> None:
    proxy, alone, _ = fleet
    expected = post(alone.url(), CHAT, request(text))
    for _ in range(3):
        answer = post(proxy, CHAT, request(text))
        assert answer.status == expected.status == 200
        assert same(answer.body) == same(expected.body)


def test_streams_are_those_of_one_server(fleet: tuple[str, Served, Served]) -> None:
    """How many tokens an event holds depends on the moment, on one server too."""
    proxy, alone, _ = fleet
    body = request("Hello!", stream=True, stream_options={"include_usage": True})
    answer, expected = post(proxy, CHAT, body), post(alone.url(), CHAT, body)
    assert answer.headers["content-type"] == expected.headers["content-type"]
    assert folded(answer.body) == folded(expected.body)
    assert answer.body.endswith(b"data: [DONE]\n\n")


def folded(stream: bytes) -> tuple[str, list[str], int]:
    """Text, finish reasons and completion tokens of a stream."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    choices = [choice for event in events for choice in event["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return text, reasons, events[-1]["usage"]["completion_tokens"]


def test_refusals_are_those_of_one_server(fleet: tuple[str, Served, Served]) -> None:
    proxy, alone, _ = fleet
    body = request("Hi", temperature=-1)
    expected, answer = post(alone.url(), CHAT, body), post(proxy, CHAT, body)
    assert (answer.status, answer.body) == (expected.status, expected.body)


def test_a_conversation_finds_its_cache_again(fleet: tuple[str, Served, Served]) -> None:
    proxy = fleet[0]
    messages = [{"role": "user", "content": "Remember these words: " + "apple pear plum " * 60}]
    cached: list[float] = []
    for turn in range(4):
        answer = post(proxy, CHAT, request("", messages=messages, max_tokens=8)).json()
        usage = answer["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
        messages += [answer["choices"][0]["message"], {"role": "user", "content": f"And {turn}?"}]
    assert min(cached[1:]) > 0.8


def test_a_killed_server_costs_no_request_and_a_stopped_one_says_goodbye(tmp_path: Path) -> None:
    with (
        proxying(tmp_path) as proxy,
        member(tmp_path / "a", proxy.url()) as first,
        member(tmp_path / "b", proxy.url()) as second,
        member(tmp_path / "c", proxy.url()) as third,
    ):
        second.process.kill()
        statuses = [post(proxy.url(), CHAT, request(f"Hello {number}")).status for number in range(8)]
        assert statuses == [200] * 8
        third.process.send_signal(signal.SIGTERM)
        wait_until(lambda: third.url() not in [node["url"] for node in nodes_of(proxy.url())])
        assert third.wait() == 0
        assert post(proxy.url(), CHAT, request("Hello")).status == 200
        assert first.url() in [node["url"] for node in nodes_of(proxy.url())]
