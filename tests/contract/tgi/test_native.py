"""TGI's native routes byte for byte, over a model whose tokens are bytes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.core.models import AdapterFacts
from jan_serve.errors import EngineCrashed, EngineFailure, JanServeError, Overloaded
from jan_serve.ipc.messages import Accepted, AdapterUse, Chunk, EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, endings, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

EOS = TokenInfo(257, b"</s>", True, -0.125)
NATIVE: dict[str, Any] = {"inputs": "Hi", "parameters": {}}


async def call(path: str, body: Any = NATIVE, script: Script | None = None) -> httpx.Response:
    model = FakeClient(script=script or saying("Hel", "lo."))
    async with http_client(FakeModels(model)) as client:
        return await client.post(path, json=body)


def token(text: str) -> str:
    return f'{{"id":{ord(text)},"text":"{text}","logprob":-0.5,"special":false}}'


END = '{"id":257,"text":"</s>","logprob":-0.125,"special":true}'


async def test_a_whole_answer_with_details() -> None:
    parameters = {"details": True, "decoder_input_details": True}
    response = await call(
        "/generate", {"inputs": "Hi", "parameters": parameters}, saying("ok", end_token=EOS)
    )
    assert response.text == (
        '{"generated_text":"ok","details":{"finish_reason":"eos_token","generated_tokens":3,"seed":null,'
        '"prefill":[{"id":72,"text":"H","logprob":null},{"id":105,"text":"i","logprob":-0.5}],'
        f'"tokens":[{token("o")},{token("k")},{END}]}}}}'
    )
    assert response.headers["content-type"] == "application/json"


async def test_a_stream() -> None:
    body = {"inputs": "Hi", "parameters": {"details": True}}
    for path, fields in (
        ("/generate_stream", {}),
        ("/", {"stream": True}),
        ("/invocations", {"stream": True}),
    ):
        response = await call(path, {**body, **fields}, saying("ok", end_token=EOS))
        prefix = "" if path == "/generate_stream" else "Hi"
        assert response.text == (
            f'data: {{"index":1,"token":{token("o")},"generated_text":null,"details":null}}\n\n'
            f'data: {{"index":2,"token":{token("k")},"generated_text":null,"details":null}}\n\n'
            f'data: {{"index":3,"token":{END},"generated_text":"{prefix}ok","details":{{"finish_reason":"eos_token",'
            '"generated_tokens":3,"seed":null,"input_length":2}}\n\n'
        )
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["x-compute-characters"] == "2"


async def test_candidates_follow_their_token() -> None:
    best = (TokenLogprob(120, b"x", -0.25), TokenLogprob(257, b"</s>", -0.5, True))

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        yield Chunk(0, "x", (TokenInfo(120, b"x", False, -0.25, best),), id=request.id)
        for event in endings(request, 1, reason="length", eos=False):
            yield event

    body = {"inputs": "Hi", "parameters": {"top_n_tokens": 2}}
    response = await call("/generate_stream", body, script)
    assert response.text == (
        'data: {"index":1,"token":{"id":120,"text":"x","logprob":-0.25,"special":false},"top_tokens":['
        '{"id":120,"text":"x","logprob":-0.25,"special":false},'
        '{"id":257,"text":"</s>","logprob":-0.5,"special":true}],"generated_text":"x","details":null}\n\n'
    )


@pytest.mark.parametrize(
    ("limit", "ending", "reason"),
    [
        (3, {"end_token": EOS}, "length"),
        (4, {"end_token": EOS}, "eos_token"),
        (None, {"reason": "length", "eos": False}, "length"),
        (None, {"stop": "k", "eos": False}, "stop_sequence"),
        (2, {"stop": "k", "eos": False}, "length"),
    ],
    ids=["limit at the end", "end", "limit", "stop string", "stop string at the limit"],
)
async def test_reasons_of_the_end(limit: int | None, ending: dict[str, Any], reason: str) -> None:
    body = {"inputs": "Hi", "parameters": {"details": True, "max_new_tokens": limit}}
    details = (await call("/generate", body, saying("ok", **ending))).json()["details"]
    assert details["finish_reason"] == reason
    assert details["generated_tokens"] == len(details["tokens"]) == (3 if "end_token" in ending else 2)


async def test_a_text_that_its_grammar_ends_gets_the_models_end() -> None:
    """The engine stops without computing that token, which is the only one that could follow."""
    parameters = {"details": True, "top_n_tokens": 1, "grammar": {"type": "regex", "value": "ok"}}
    response = await call("/generate", {"inputs": "Hi", "parameters": parameters}, saying("ok", eos=False))
    details = response.json()["details"]
    certain = {"id": 257, "text": "</s>", "logprob": 0.0, "special": True}
    assert (details["finish_reason"], details["tokens"][-1]) == ("eos_token", certain)
    assert details["top_tokens"][-1] == [certain]


async def test_a_character_belongs_to_the_token_that_completes_it() -> None:
    response = await call("/generate", {"inputs": "Hi", "parameters": {"details": True}}, saying("é"))
    assert [each["text"] for each in response.json()["details"]["tokens"][:2]] == ["", "é"]


async def test_best_of_is_by_the_mean_of_all_tokens() -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        for index, logprob in enumerate((-0.5, -0.25)):
            info = TokenInfo(97 + index, bytes([97 + index]), False, logprob)
            yield Chunk(index, chr(97 + index), (info,), id=request.id)
        for index, event in enumerate(endings(request, 1, seed=5)):
            yield event if index == 2 else _seeded(event, index)

    parameters = {"best_of": 2, "do_sample": True, "details": True}
    response = await call("/generate", {"inputs": "Hi", "parameters": parameters}, script)
    body = response.json()
    # Of the answer; the other token is not part of it.
    assert response.headers["x-generated-tokens"] == str(body["details"]["generated_tokens"])
    assert body["generated_text"] == "b"
    assert body["details"]["seed"] == 6
    [loser] = body["details"]["best_of_sequences"]
    assert (loser["generated_text"], loser["seed"]) == ("a", 5)
    assert list(loser) == ["generated_text", "finish_reason", "generated_tokens", "seed", "prefill", "tokens"]


def _seeded(event: Any, index: int) -> Any:
    return msgspec.structs.replace(event, seed=5 + index)


async def test_the_root_answers_an_array_and_prepends_the_input() -> None:
    assert (await call("/")).json() == [{"generated_text": "HiHello."}]
    assert (await call("/", {"inputs": "Hi", "parameters": {"return_full_text": False}})).json() == [
        {"generated_text": "Hello."}
    ]
    assert (await call("/generate", {**NATIVE, "stream": True})).json() == {"generated_text": "Hello."}


async def test_platforms() -> None:
    for prefix in ("", "/tgi"):
        path = f"{prefix}/invocations"
        assert (await call(path)).json() == [{"generated_text": "HiHello."}]
        chat = await call(path, {"messages": [{"role": "user", "content": "Hi"}]})
        assert chat.json()["choices"][0]["message"]["content"] == "Hello."
        assert (await call(path, {"prompt": "Hi"})).json()["object"] == "text_completion"
        nothing = await call(path, {"nothing": 1})
        assert (nothing.status_code, nothing.headers["content-type"]) == (422, "text/plain; charset=utf-8")
        assert "data did not match any variant of untagged enum SagemakerRequest" in nothing.text
        instances = [NATIVE, {"inputs": "Hi"}, {"messages": [{"role": "user", "content": "Hi"}]}]
        assert (await call(f"{prefix}/vertex", {"instances": instances})).json() == {
            "predictions": ["Hello."] * 3
        }
        assert (await call(f"{prefix}/vertex", {"instances": [{"text": 1}]})).status_code == 422
        async with http_client() as client:
            ping = await client.get(f"{prefix}/ping")
        assert (ping.status_code, ping.content) == (200, b"")


async def test_tokens_of_a_text_and_of_a_chat() -> None:
    text = "é<s>\x00"
    tokens = (await call("/tokenize", {"inputs": text})).json()
    assert tokens[0] == {"id": 256, "text": "", "start": 0, "stop": 0}
    spans = [(each["start"], each["stop"]) for each in tokens[1:]]
    data = text.encode()
    assert b"".join(data[start:stop] for start, stop in spans) == data
    assert tokens[1]["text"] == "\N{REPLACEMENT CHARACTER}"
    assert (await call("/tokenize", {"inputs": ""})).status_code == 200
    chat = (await call("/chat_tokenize", {"messages": [{"role": "user", "content": "Hi"}]})).json()
    assert "Hi" in chat["templated_text"]
    assert "".join(each["text"] for each in chat["tokenize_response"]) == chat["templated_text"]
    assert chat["tokenize_response"][0]["start"] == 0
    assert chat["tokenize_response"][0]["stop"] == 1


def failing(error: JanServeError, *, after: bool) -> Script:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        if after:
            yield Chunk(0, "o", (TokenInfo(111, b"o", False, -0.5),), id=request.id)
        raise error

    return script


FAILURES: dict[str, tuple[JanServeError, int, str, str]] = {
    "generation": (EngineFailure("x"), 424, "Request failed during generation: x", "generation"),
    "incomplete": (EngineCrashed("x"), 500, "Incomplete generation", "incomplete_generation"),
    "overloaded": (Overloaded("x"), 429, "Model is overloaded", "overloaded"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_failures(case: str) -> None:
    error, status, words, kind = FAILURES[case]
    whole = await call("/generate", NATIVE, failing(error, after=True))
    assert (whole.status_code, whole.json()) == (status, {"error": words, "error_type": kind})
    if case == "incomplete":
        words, kind = "Incomplete generation stream", "incomplete_generation_stream"
    for after in (True, False):
        streamed = await call("/generate_stream", NATIVE, failing(error, after=after))
        assert streamed.status_code == 200
        assert streamed.text == f'data: {{"error":"{words}","error_type":"{kind}"}}\n\n'


GRAMMARS: dict[str, tuple[str, Any, int, str]] = {
    "no schema": (
        "json",
        {"properties": {}, "type": 1},
        422,
        "Input validation error: grammar is not valid: ",
    ),
    "text": ("json", "{", 422, "Input validation error: grammar is not valid: "),
    "without properties": (
        "json_schema",
        {"schema": {}},
        422,
        "Input validation error: grammar is not valid: Grammar must have a 'properties' field",
    ),
    "another type": ("json", [1], 422, "Input validation error: grammar is not supported"),
    "what cannot be held to": (
        "json",
        {"properties": {"a": {"type": "string", "pattern": "(a)\\1"}}},
        422,
        "Input validation error: cannot compile regex from schema: ",
    ),
    "pattern": ("regex", "(a", 424, "Request failed during generation: "),
}


@pytest.mark.parametrize("case", GRAMMARS)
async def test_grammars_that_are_refused(case: str) -> None:
    kind, value, status, words = GRAMMARS[case]
    body = {"inputs": "a", "parameters": {"grammar": {"type": kind, "value": value}}}
    response = await call("/generate", body)
    assert response.status_code == status
    assert response.json()["error"].startswith(words)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/generate", {"inputs": "a", "parameters": {"adapter_id": "Style"}}),
        ("/tgi/v1/completions", {"prompt": "a", "model": "Style"}),
        ("/tgi/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "model": "Style"}),
    ],
)
async def test_adapters(path: str, fields: dict[str, Any]) -> None:
    facts = fake_facts(adapters=(AdapterFacts("other", 1.0), AdapterFacts("style", 0.5)))
    model = FakeClient(facts=facts)
    async with http_client(FakeModels(model)) as client:
        assert (await client.post(path, json=fields)).status_code == 200
        unknown = json.loads(json.dumps(fields).replace("Style", "nobody"))
        assert (await client.post(path, json=unknown)).status_code == 200
    assert [request.adapters for request in model.requests] == [(AdapterUse(1, 0.5),), ()]


async def test_a_refused_stream_is_one_event() -> None:
    response = await call("/generate_stream", {"inputs": "Hi", "parameters": {"temperature": 0}})
    assert response.status_code == 200
    assert response.text == (
        'data: {"error":"Input validation error: `temperature` must be strictly positive",'
        '"error_type":"validation"}\n\n'
    )


LENGTHS: dict[str, tuple[dict[str, Any], int | None, str]] = {
    "total": ({}, 10, "must be <= 6. Given: 2 `inputs` tokens and 10 `max_new_tokens`"),
    "unset": ({"tgi_max_input_tokens": 1}, None, "`inputs` must have less than 1 tokens. Given: 2"),
    "slice": ({"tgi_max_total_tokens": 500}, 5000, "Given: 2 `inputs` tokens and 1024 `max_new_tokens`"),
}


@pytest.mark.parametrize("case", LENGTHS)
async def test_lengths(case: str) -> None:
    settings, wanted, words = LENGTHS[case]
    parameters = {} if wanted is None else {"max_new_tokens": wanted}
    limits: dict[str, Any] = {"tgi_max_total_tokens": 6, **settings}
    async with http_client(**limits) as client:
        response = await client.post("/generate", json={"inputs": "a", "parameters": parameters})
    assert response.status_code == 422
    assert words in response.json()["error"]


async def test_an_answer_may_fill_what_is_left() -> None:
    client = FakeClient()
    async with http_client(FakeModels(client), tgi_max_total_tokens=100) as front:
        await front.post("/generate", json={"inputs": "a", "parameters": {}})
        await front.post(
            "/generate", json={"inputs": "abc", "parameters": {"truncate": 2, "max_new_tokens": 98}}
        )
    assert [request.stopping.max_tokens for request in client.requests] == [98, 98]
    assert client.requests[1].prompt == ((98, 99),)


async def test_what_reaches_the_engine() -> None:
    client = FakeClient()
    sampled = {"do_sample": True, "seed": (1 << 64) - 1, "watermark": True, "frequency_penalty": -1.5}
    async with http_client(FakeModels(client), watermark_gamma=0.25, watermark_delta=1.0) as front:
        await front.post("/generate", json={"inputs": "a", "parameters": sampled})
        await front.post("/generate", json={"inputs": "a", "parameters": {"stop": ["x"], "do_sample": False}})
        await front.post("/generate", json={"inputs": "a"})
    first, second, third = (request.sampling for request in client.requests)
    assert first.watermark is not None
    assert (first.watermark.gamma, first.watermark.delta) == (0.25, 1.0)
    assert (first.seed, first.frequency_penalty, first.temperature) == ((1 << 64) - 1, -1.5, 1.0)
    assert {each.pipeline for each in (first, second, third)} == {"warped"}
    assert (second.temperature, third.temperature) == (0.0, 1.0)
    stopping = client.requests[1].stopping
    assert (stopping.stop, stopping.stop_at_token_end, stopping.include_stop) == (("x",), True, True)


async def test_headers_are_numbers() -> None:
    headers = (await call("/generate", {"inputs": "Hé", "parameters": {}})).headers
    for name in "total-time validation-time queue-time inference-time time-per-token".split():
        assert headers[f"x-{name}"].isdigit(), name
    assert (headers["x-queue-time"], headers["x-inference-time"]) == ("100", "500")
    assert headers["x-time-per-token"] == str(500 // 7)
    assert re.fullmatch(r"\d+\.\d+", headers["x-compute-time"])
    parts = [int(headers[f"x-{name}-time"]) for name in ("validation", "queue", "inference")]
    assert 0 <= int(headers["x-total-time"]) - sum(parts) <= 2
    assert int(float(headers["x-compute-time"]) * 1000) == int(headers["x-total-time"])
    assert (headers["x-compute-characters"], headers["x-prompt-tokens"]) == ("2", "4")
    assert (headers["x-generated-tokens"], headers["x-compute-type"]) == ("7", "cpu+optimized")
