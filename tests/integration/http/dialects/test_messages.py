"""/v1/messages over real llama.cpp: the ends of answers, and the count of a prompt."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.agent_session import TURNS, agent_requests
from tests.integration.http.support import N_CTX, serving_models
from tests.support.clients.message_events import events_of, replayed
from tests.support.clients.raw_http import RawResponse, post

pytestmark = pytest.mark.integration

HI: Final[dict[str, Any]] = {
    "model": "exact-llama",
    "temperature": 0,
    "max_tokens": 8,
    "messages": [{"role": "user", "content": "Hello!"}],
}


@pytest.fixture(scope="module")
def url(exact_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("messages")
    with serving_models(folder, exact_llama, flags=("--n-ctx", str(N_CTX), "--parallel", "1")) as server:
        yield server.url()


def asked(url: str, **fields: Any) -> RawResponse:
    return post(url, "/v1/messages", HI | fields)


@pytest.mark.parametrize(
    ("max_tokens", "reason"),
    [(8, "max_tokens"), (0, "max_tokens"), (32_000, "model_context_window_exceeded")],
)
def test_an_answer_ends_with_its_tokens_or_with_the_context(url: str, max_tokens: int, reason: str) -> None:
    whole = asked(url, max_tokens=max_tokens).json()
    streamed = replayed(events_of(asked(url, max_tokens=max_tokens, stream=True).body.decode()))
    assert (whole["stop_reason"], streamed["stop_reason"]) == (reason, reason)
    assert streamed["content"] == whole["content"]
    usage = whole["usage"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert usage["output_tokens"] == min(max_tokens, N_CTX - prompt)


def test_a_stop_sequence_is_named(url: str) -> None:
    text = asked(url).json()["content"][0]["text"]
    stopped = asked(url, stop_sequences=["never written", text[-1]]).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", text[-1])


def test_a_prompt_is_counted_as_it_is_read(url: str) -> None:
    body = {name: value for name, value in HI.items() if name not in ("max_tokens", "temperature")}
    body |= {"system": "Be kind.", "tools": [{"name": "ls", "input_schema": {"type": "object"}}]}
    counted = post(url, "/v1/messages/count_tokens", body).json()["input_tokens"]
    usage = asked(url, **body).json()["usage"]
    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_is_too_long_is_a_400_with_both_numbers(url: str, *, streamed: bool) -> None:
    refused = asked(url, messages=[{"role": "user", "content": "a" * 2000}], stream=streamed)
    assert refused.status == 400
    message = refused.json()["error"]["message"]
    assert message.startswith("prompt is too long: ")
    assert f" tokens > {N_CTX} maximum." in message


MAX_SHARE_ANEW = 0.05


def test_a_turn_computes_at_most_a_twentieth_of_its_prompt(exact_llama: Path, tmp_path: Path) -> None:
    bodies = agent_requests("exact-llama", 1, share=0.04, max_tokens=4)
    with serving_models(tmp_path, exact_llama, flags=("--n-ctx", "32768")) as server:
        url = server.url()
        usages = [post(url, "/v1/messages", body).json()["usage"] for body in bodies]
        counted = post(url, "/v1/messages/count_tokens", bodies[-1]).json()
    shares: list[float] = []
    for usage in usages:
        total = usage["input_tokens"] + usage["cache_read_input_tokens"]
        shares.append(usage["input_tokens"] / total)
    assert len(shares) == TURNS
    assert shares[0] == 1.0
    assert max(shares[1:]) <= MAX_SHARE_ANEW, shares
    assert counted["input_tokens"] == usages[-1]["input_tokens"] + usages[-1]["cache_read_input_tokens"]
