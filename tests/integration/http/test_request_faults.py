"""Requests that crashed or blocked other servers, over HTTP against a real model: each is served or rejected.

After each test the server still works as before (`Healthy.check`). Signals and processes: `test_process_faults`.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import openai
import psutil
import pytest

from tests.integration.http.support import (
    CHATS,
    COMPLETIONS,
    ENDLESS,
    GREEDY,
    HEALTH_LIMIT_S,
    LONG_CTX,
    N_CTX,
    VOCABULARY,
    Healthy,
    assert_one_error_at_the_end,
    complete,
    error_of,
    metric,
    payloads,
    send_stream,
    serving_models,
    start_stream,
    text_of,
    texts,
    workers_of,
)
from tests.support.clients.raw_http import connect, get, post, post_bytes
from tests.support.processes import wait_until
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

CANARY: Final = "zebra-quartz"
"""A prompt that no log line may contain."""

DETOKENIZE: Final = "/extras/detokenize"
HI: Final = [{"role": "user", "content": CANARY}]
COMPUTED: Final = "jan_serve_engine_computed_tokens_total"
GENERATED: Final = "jan_serve_engine_generated_tokens_total"
LEAK_BYTES: Final = 64 * 1024
"""A server that keeps the requests of a round grows by more in each round."""


@pytest.fixture(scope="module")
def healthy(server: Served) -> Healthy:
    return Healthy(server)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[Healthy]:
    """A context so long that requests take many seconds, with one slot: one that does not stop blocks the next."""
    flags = ("--n-ctx", str(LONG_CTX), "--parallel", "1", "--sse-ping-s", "0.1")
    with serving_models(tmp_path_factory.mktemp("slow"), exact_llama, flags=flags) as served:
        yield Healthy(served)


def prompt(**fields: Any) -> dict[str, Any]:
    return {"prompt": CANARY, "max_tokens": 4, **fields}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": HI, "max_tokens": 4, **fields}


REFUSED: Final[dict[str, tuple[str, dict[str, Any] | bytes, str, str]]] = {
    # case: (path, body, code, words of the message)
    "grammar: undefined rule": (COMPLETIONS, prompt(grammar="root ::= nowhere"), "invalid_grammar", "nowhere"),
    "grammar: left recursion": (COMPLETIONS, prompt(grammar='root ::= root "a" | "b"'), "invalid_grammar", "line 1"),
    "grammar: nonsense": (COMPLETIONS, prompt(grammar="this is not gbnf ((("), "invalid_grammar", "line 1"),
    "grammar: other language": (COMPLETIONS, prompt(grammar="%llguidance {}"), "invalid_grammar", "line 1"),
    "grammar: empty": (COMPLETIONS, prompt(grammar=""), "invalid_grammar", "root"),
    "grammar: on the second line": (CHATS, chat(grammar='root ::= a\na ::= "x'), "invalid_grammar", "line 2"),
    "detokenize: large id": (DETOKENIZE, {"tokens": [99999999]}, "invalid_request", "99999999"),
    "detokenize: next id": (DETOKENIZE, {"tokens": [VOCABULARY]}, "invalid_request", f"0 to {VOCABULARY - 1}"),
    "detokenize: negative id": (DETOKENIZE, {"tokens": [-5]}, "invalid_request", "-5"),
    "prompt ids: large id": (COMPLETIONS, prompt(prompt=[1, 999999]), "invalid_request", "999999"),
    "prompt ids: negative id": (COMPLETIONS, prompt(prompt=[1, -7]), "invalid_request", "-7"),
    "prompt ids: empty": (COMPLETIONS, prompt(prompt=[]), "invalid_request", "empty"),
    "prompt ids: empty inside": (COMPLETIONS, prompt(prompt=[[1], []]), "invalid_request", "empty"),
    "embedding ids: large id": ("/v1/embeddings", {"input": [1, 999999]}, "invalid_request", "999999"),
    "logit_bias: large id": (COMPLETIONS, prompt(logit_bias={"999999": 5}), "invalid_request", "999999"),
    "logit_bias: next id": (CHATS, chat(logit_bias={str(VOCABULARY): 5}), "invalid_request", str(VOCABULARY)),
    "logit_bias: negative id": (COMPLETIONS, prompt(logit_bias={"-1": 100}), "invalid_request", "-1"),
    "logit_bias: no number": (COMPLETIONS, prompt(logit_bias={"AI": 1}), "invalid_request", "AI"),
    "logit_bias: too much": (COMPLETIONS, prompt(logit_bias={"5": 101}), "invalid_request", "100"),
    "logit_bias: too many": (
        COMPLETIONS, prompt(logit_bias={str(i): 1 for i in range(100_000)}), "invalid_request", "1024"
    ),
    "not a number": (COMPLETIONS, b'{"prompt":"a","temperature":NaN}', "invalid_json", "JSON"),
    "infinite": (COMPLETIONS, b'{"prompt":"a","temperature":1e999}', "invalid_json", "JSON"),
    "hot": (COMPLETIONS, prompt(temperature=1e9), "invalid_request", "from 0 to 100"),
    "cold": (COMPLETIONS, prompt(temperature=-5), "invalid_request", "from 0 to 100"),
    "top_p": (COMPLETIONS, prompt(top_p=-1), "validation_error", "from 0 to 1"),
    "min_p": (CHATS, chat(min_p=5), "validation_error", "from 0 to 1"),
    "repeat_penalty": (COMPLETIONS, prompt(repeat_penalty=0), "invalid_request", "above 0"),
    "max_tokens": (COMPLETIONS, prompt(max_tokens=-5), "validation_error", "0 or more"),
    "max_tokens of a chat": (CHATS, chat(max_tokens=-5), "invalid_request", "-1"),
    "empty stop": (COMPLETIONS, prompt(stop=[""]), "invalid_request", "empty"),
    "too many: n": (COMPLETIONS, prompt(n=1000), "invalid_request", "128"),
    "too many: best_of": (COMPLETIONS, prompt(best_of=1000), "invalid_request", "128"),
    "too many: n of prompts": (COMPLETIONS, prompt(prompt=["a"] * 20, n=20), "invalid_request", "128"),
    "too many: prompts": (COMPLETIONS, prompt(prompt=["a"] * 100_000), "invalid_request", "128"),
    "too many: stops": (COMPLETIONS, prompt(stop=["b"] * 500_000), "invalid_request", "64"),
    "too many: top_logprobs": (CHATS, chat(logprobs=True, top_logprobs=100_000), "invalid_request", "100"),
    "too many: logprobs": (COMPLETIONS, prompt(logprobs=100_000), "invalid_request", "100"),
    "too many: tools": (
        CHATS,
        chat(tools=[{"type": "function", "function": {"name": "f"}}] * 10_000),
        "invalid_request",
        "512",
    ),
    "too many: inputs": ("/v1/embeddings", {"input": ["a"] * 100_000}, "invalid_request", "2048"),
    "text: no UTF-8": (COMPLETIONS, b'{"prompt":"\xff\xfe"}', "invalid_json", "UTF-8"),
    "text: GBK": (COMPLETIONS, '{"prompt":"你好"}'.encode("gbk"), "invalid_json", "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(healthy: Healthy, case: str) -> None:
    path, body, code, words = REFUSED[case]
    response = post(healthy.url, path, body)
    assert response.status == (422 if code == "validation_error" else 400)
    error = error_of(response) if response.status == 400 else response.json()["error"]
    assert error["code"] == code
    assert words in error["message"]
    healthy.check(CANARY)


STREAMED: Final = [
    case
    for case, (path, body, *_) in REFUSED.items()
    if isinstance(body, dict) and path in (COMPLETIONS, CHATS)
]


def test_refused_requests_leak_no_memory(tmp_path: Path, exact_llama: Path) -> None:
    """All of them in rounds: in a server that loses none, some round needs no more memory than the one before.

    No log line is kept: two thousand of them, each beside the objects of a large body, hold a pool of Python's each.
    """
    with serving_models(tmp_path, exact_llama, flags=("--log-level", "warning")) as served:
        processes = [psutil.Process(served.process.pid), *workers_of(served)]

        def after_a_round() -> list[int]:
            for path, body, *_ in REFUSED.values():
                assert post(served.url(), path, body).status in (400, 422)
            return [process.memory_info().rss for process in processes]

        after_a_round()
        rounds = [after_a_round() for _ in range(15)]
    for sizes in zip(*rounds, strict=True):
        growths = [now - then for then, now in itertools.pairwise(sizes)]
        assert min(growths) < LEAK_BYTES, growths


@pytest.mark.parametrize("case", STREAMED)
def test_refused_before_a_stream_begins(server: Served, case: str) -> None:
    path, body, code, _ = REFUSED[case]
    assert isinstance(body, dict)
    response = post(server.url(), path, {**body, "stream": True})
    assert response.status == (422 if code == "validation_error" else 400)
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("excess", [-1, 0, 1, 1000])
def test_prompts_about_as_long_as_the_context_are_answered_or_rejected(
    healthy: Healthy, stream: bool, excess: int
) -> None:
    length = N_CTX + excess
    response = complete(healthy.url, [40] * length, max_tokens=None, stream=stream)
    if excess < 0:  # one token of the answer fits
        assert response.status == 200
        events = payloads(response.body) if stream else [response.body.decode()]
        reasons = [json.loads(event)["choices"][0]["finish_reason"] for event in events if event != "[DONE]"]
        assert reasons[-1] == "length"
    else:
        assert response.status == 400
        assert error_of(response)["code"] == "context_length_exceeded"
        for number in (length, N_CTX):
            assert str(number) in error_of(response)["message"]
    healthy.check()


def test_a_very_short_context_still_answers(tmp_path: Path, exact_llama: Path) -> None:
    with serving_models(tmp_path, exact_llama, flags=("--n-ctx", "64")) as served:
        healthy = Healthy(served)
        for text in ("hello " * 2000, "hello " * 40):
            error = error_of(complete(healthy.url, text))
            assert error["code"] == "context_length_exceeded"
            assert " 64 tokens" in error["message"]
        healthy.check("hello hello")


def test_answers_end_at_the_servers_limit(tmp_path: Path, exact_llama: Path) -> None:
    flags = ("--n-ctx", str(N_CTX), "--max-tokens-ceiling", "30")
    with serving_models(tmp_path, exact_llama, flags=flags) as served:
        healthy = Healthy(served)
        endless: dict[str, Any] = {**GREEDY, "logit_bias": {"0": -100}}
        for path, body in (
            (COMPLETIONS, {"prompt": CANARY, "max_tokens": None}),
            (COMPLETIONS, {"prompt": CANARY, "max_tokens": 10_000}),
            (CHATS, {"messages": HI}),
            (CHATS, {"messages": HI, "max_tokens": -1}),
        ):
            reply = post(healthy.url, path, {**body, **endless}).json()
            assert reply["choices"][0]["finish_reason"] == "length"
            assert reply["usage"]["completion_tokens"] == 30
        healthy.check(CANARY)


def test_answers_end_with_the_time(tmp_path: Path, exact_llama: Path) -> None:
    flags = ("--n-ctx", str(LONG_CTX), "--request-timeout-s", "3")
    with serving_models(tmp_path, exact_llama, flags=flags) as served:
        healthy = Healthy(served)
        endless: dict[str, Any] = {**ENDLESS, "n": 8}
        with connect(healthy.url) as connection:
            send_stream(connection, healthy.url, CANARY, **endless)
            whole = complete(healthy.url, CANARY, **endless)
            stream = connection.response()
        assert (whole.status, error_of(whole)["code"]) == (504, "deadline_exceeded")
        assert stream.status == 200
        assert_one_error_at_the_end(payloads(stream.body), "deadline_exceeded")
        healthy.check(CANARY)


@pytest.mark.parametrize("text", ["a" * 2_000_000, "word " * 10_000, " " * 200_000, "é" * 1_000_000])
def test_health_answers_while_a_large_text_is_tokenised(healthy: Healthy, text: str) -> None:
    with connect(healthy.url) as connection:
        connection.send(post_bytes(healthy.url, COMPLETIONS, {"prompt": text}))
        for _ in range(5):
            start = time.monotonic()
            assert get(healthy.url, "/health").status == 200
            assert time.monotonic() - start < HEALTH_LIMIT_S
        response = connection.response()
    assert error_of(response)["code"] == "context_length_exceeded"
    healthy.check(text[:100] if text.strip() else CANARY)


def test_a_body_over_the_limit_is_rejected(healthy: Healthy) -> None:
    with connect(healthy.url) as connection:
        connection.send(post_bytes(healthy.url, COMPLETIONS, {"prompt": "a" * (33 << 20)}))
        response = connection.response()
    assert (response.status, error_of(response)["code"]) == (413, "body_too_large")
    healthy.check()


PROMPTS: Final = ("the people said that water was great", "every good house has a large door")


def answer_one_way(url: str, kind: str, text: str) -> str | None:
    """The answer, requested in one of three ways; None if the client disconnected."""
    if kind == "whole":
        return text_of(complete(url, text, max_tokens=60))
    if kind == "stream":
        events = payloads(complete(url, text, max_tokens=60, stream=True).body)
        assert events[-1] == "[DONE]"
        return texts(events)
    with connect(url) as connection:
        start_stream(connection, url, text, max_tokens=400)
    return None


def test_an_answer_among_32_equals_the_answer_alone(healthy: Healthy) -> None:
    url = healthy.url
    alone = {text: text_of(complete(url, text, max_tokens=60)) for text in PROMPTS}
    assert len(set(alone.values())) == 2
    shuffle = random.Random(18)
    for _ in range(10):
        calls = [(kind, text) for kind in ("whole", "stream") for text in PROMPTS * 6]
        calls += [("cancel", text) for text in PROMPTS * 4]
        assert len(calls) == 32
        shuffle.shuffle(calls)
        with ThreadPoolExecutor(32) as pool:
            futures = [pool.submit(answer_one_way, url, kind, text) for kind, text in calls]
        answers = [future.result() for future in futures]
        for (kind, text), answer in zip(calls, answers, strict=True):
            assert answer == (None if kind == "cancel" else alone[text])
    wait_until(lambda: metric(url, "jan_serve_open_requests") == 0)
    healthy.check(*PROMPTS)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(slow: Healthy, stream: bool) -> None:
    before, generated = metric(slow.url, "jan_serve_cancelled_total"), metric(slow.url, GENERATED)
    with connect(slow.url) as connection:
        if stream:
            start_stream(connection, slow.url, CANARY, **ENDLESS)
        else:
            connection.send(post_bytes(slow.url, COMPLETIONS, {"prompt": CANARY, **ENDLESS, **GREEDY}))
            wait_until(lambda: metric(slow.url, GENERATED) > generated + 50)
    assert text_of(complete(slow.url, "hello", max_tokens=8)) == slow.golden
    wait_until(lambda: metric(slow.url, "jan_serve_cancelled_total") == before + 1)
    assert metric(slow.url, GENERATED) - generated < ENDLESS["max_tokens"]
    assert metric(slow.url, "jan_serve_requests_total", status="499") >= 1
    slow.check(CANARY)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_during_prefill_frees_its_place(slow: Healthy, stream: bool) -> None:
    ids = random.Random(stream).choices(range(100, 250), k=LONG_CTX - 100)
    before, computed = metric(slow.url, "jan_serve_cancelled_total"), metric(slow.url, COMPUTED)
    with connect(slow.url) as connection:
        body = {"prompt": ids, "max_tokens": 4, "stream": stream}
        connection.send(post_bytes(slow.url, COMPLETIONS, body))
        wait_until(lambda: metric(slow.url, COMPUTED, model="exact-llama") > computed)
    assert text_of(complete(slow.url, "hello", max_tokens=8)) == slow.golden
    wait_until(lambda: metric(slow.url, "jan_serve_cancelled_total") == before + 1)
    assert metric(slow.url, COMPUTED) - computed < len(ids)
    slow.check()


def test_a_nul_is_kept(healthy: Healthy) -> None:
    text = "a\x00b" + CANARY
    assert text_of(complete(healthy.url, text, echo=True, max_tokens=2)).startswith(text)
    ids = post(healthy.url, "/extras/tokenize", {"input": text}).json()["tokens"]
    assert post(healthy.url, DETOKENIZE, {"tokens": ids}).json()["text"] == text
    healthy.check(CANARY)


WIDE: Final = "😀é模"
WIDE_BYTES: Final = WIDE.encode()


def wide(url: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """A choice whose text is forced to be WIDE, of one byte per token, and the events of its stream."""
    fields = {"grammar": f'root ::= "{WIDE}"', "logprobs": 0, **fields}
    whole = complete(url, "a", **fields).json()["choices"][0]
    return whole, payloads(complete(url, "a", stream=True, **fields).body)


@pytest.mark.parametrize("length", range(1, len(WIDE_BYTES) + 1))
def test_characters_split_across_tokens_are_whole_at_every_cut(healthy: Healthy, length: int) -> None:
    whole, events = wide(healthy.url, max_tokens=length)
    assert texts(events) == whole["text"]
    characters = WIDE_BYTES[:length].decode(errors="ignore")
    assert whole["text"] == characters
    assert "".join(whole["logprobs"]["tokens"]).count("\\x") == length
    reply = post(
        healthy.url,
        CHATS,
        {
            "messages": HI,
            "grammar": f'root ::= "{WIDE}"',
            "max_tokens": length,
            "logprobs": True,
            "top_logprobs": 1,
        },
    ).json()["choices"][0]
    data = bytes(byte for token in reply["logprobs"]["content"] for byte in token["bytes"])
    assert data == WIDE_BYTES[:length]
    assert reply["message"]["content"] == whole["text"]
    healthy.check(CANARY)


def test_a_limit_inside_a_character_shows_no_replacement(healthy: Healthy) -> None:
    cuts = [wide(healthy.url, max_tokens=length)[0]["text"] for length in range(1, len(WIDE_BYTES))]
    assert cuts == [WIDE_BYTES[:length].decode(errors="ignore") for length in range(1, len(WIDE_BYTES))]


@pytest.mark.parametrize("stop", [*WIDE, WIDE[1:], "é模"])
def test_stops_of_split_characters_end_the_text(healthy: Healthy, stop: str) -> None:
    whole, events = wide(healthy.url, max_tokens=20, stop=stop)
    assert (whole["text"], whole["finish_reason"]) == (WIDE[: WIDE.index(stop)], "stop")
    assert texts(events) == whole["text"]
    assert events[-1] == "[DONE]"


def test_a_silent_prefill_sends_comments_and_the_client_reads_on(slow: Healthy) -> None:
    ids = random.Random(73).choices(range(100, 250), k=LONG_CTX // 2)
    fields: dict[str, Any] = {"max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    response = complete(slow.url, ids, **fields)
    head, _, tail = response.body.partition(b"data: ")
    assert b": ping\n" in head
    events = payloads(b"data: " + tail)
    assert events[-1] == "[DONE]"
    usage = [json.loads(event)["usage"] for event in events[:-1]]
    assert usage[:-1] == [None] * (len(usage) - 1)
    assert usage[-1]["prompt_tokens"] == len(ids)
    with openai.OpenAI(base_url=f"{slow.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.completions.create(model="exact-llama", prompt=ids[:99], max_tokens=4, stream=True)
        assert sum(bool(event.choices[0].finish_reason) for event in stream) == 1
    slow.check()
