"""`return_progress` and `timings_per_token`, in every stream that has llama-server's form or adds to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.core.events import Timings, Usage
from jan_serve.core.models import SpecialToken
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, RequestProgressed
from tests.support.engine.fake_client import FakeClient, FakeModels, endings, fake_facts
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/completion": {"prompt": "Hi"},
    "/infill": {"input_prefix": "Hi"},
}
WANTED = {"stream": True, "return_progress": True, "timings_per_token": True}


async def reporting(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A prompt of ten tokens, four of them cached, in two steps; then a token a piece."""

    def report(decoded: int, read: int | None = None) -> RequestProgressed:
        return RequestProgressed(
            id=request.id,
            usage=Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=decoded),
            timings=Timings(prefill_s=0.5, decode_s=decoded / 2),
            read_tokens=read,
        )

    yield Accepted(request.id, 10)
    if request.reports_progress:
        yield report(0, 4)
        yield report(0, 7)
        yield report(0, 10)
    for number, piece in enumerate(("a", "b"), 1):
        for index in range(request.n):
            if request.reports_progress:
                yield report(number)
            yield Chunk(index, piece, id=request.id)
    if request.reports_progress:
        yield report(2)
    for event in endings(request, 2):
        yield event


async def stream(path: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    marks = dict.fromkeys(("fim_pre", "fim_suf", "fim_mid"), SpecialToken(256, "<s>"))
    client = FakeClient(name="m", facts=fake_facts(special_tokens=marks), script=reporting)
    async with http_client(FakeModels(client)) as http:
        answer = await http.post(path, json={"model": "m"} | ROUTES[path] | fields)
    assert answer.status_code == 200, answer.text
    if not fields.get("stream"):
        return [answer.json()]
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("path", ROUTES)
async def test_a_stream_reports_the_prompt_and_then_each_piece(path: str) -> None:
    chunks = await stream(path, WANTED)
    prompts = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert prompts == [{"total": 10, "cache": 4, "processed": read, "time_ms": 500} for read in (4, 7, 10)]
    pieces = [chunk for chunk in chunks if '"a"' in json.dumps(chunk) or '"b"' in json.dumps(chunk)]
    decoded = [chunk["timings"]["predicted_n"] for chunk in pieces if "timings" in chunk]
    assert decoded[:2] == [1, 2]
    timed = next(chunk["timings"] for chunk in chunks if "timings" in chunk)
    assert (timed["cache_n"], timed["prompt_n"], timed["predicted_per_second"]) == (4, 6, 2)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("name", ["return_progress", "timings_per_token"])
async def test_each_field_adds_its_own_member_alone(path: str, name: str) -> None:
    """llama-server's routes have the timings of the whole answer anyway, in the last chunk."""
    chunks = await stream(path, {"stream": True, name: True})
    assert any("prompt_progress" in chunk for chunk in chunks) is (name == "return_progress")
    assert any("timings" in chunk for chunk in chunks[:-1]) is (name == "timings_per_token")


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("fields", [{"stream": True}, {**WANTED, "stream": False}], ids=["unasked", "whole"])
async def test_nothing_is_added_unasked_or_to_a_whole_answer(path: str, fields: dict[str, Any]) -> None:
    chunks = await stream(path, fields)
    assert not any("prompt_progress" in chunk for chunk in chunks)
    assert not any("timings" in chunk for chunk in chunks[:-1])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_each_choice_has_its_own_timings(path: str) -> None:
    chunks = await stream(path, {**WANTED, "n": 2})
    timed = [
        (chunk["choices"][0]["index"], chunk["timings"]["predicted_n"])
        for chunk in chunks
        if "timings" in chunk and chunk["choices"][0]["finish_reason"] is None
    ]
    assert timed == [(0, 1), (1, 1), (0, 2), (1, 2)]


async def test_each_prompt_of_a_call_is_reported_under_its_first_choice() -> None:
    chunks = await stream("/v1/completions", {**WANTED, "prompt": ["Hi", "Ho"], "n": 2})
    reported = [chunk["choices"][0]["index"] for chunk in chunks if "prompt_progress" in chunk]
    assert sorted(reported) == [0, 0, 0, 2, 2, 2]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("name", ["return_progress", "timings_per_token"])
async def test_another_type_is_refused_by_the_name_of_the_field(path: str, name: str) -> None:
    async with http_client(FakeModels(FakeClient(name="m", script=reporting))) as http:
        answer = await http.post(path, json={"model": "m"} | ROUTES[path] | {name: "often"})
    assert answer.status_code == 422 and name in answer.text
