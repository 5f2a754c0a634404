"""An answer that repeats itself: who asks for its end, how the engine hears of it, and what each dialect says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from jan_serve.core.request import LOOPS, LoopAction, RepetitionDetection
from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
LENGTH = {"finish_reason": "length", "stop_reason": "repetition_detected"}
ROUTES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": ({"messages": MESSAGES}, LENGTH),
    "/v1/completions": ({"prompt": "Hi"}, LENGTH),
    "/lmdeploy/v1/chat/completions": ({"messages": MESSAGES}, LENGTH),
    "/lmdeploy/v1/completions": ({"prompt": "Hi"}, LENGTH),
    "/v1/responses": (
        {"input": "Hi"},
        {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens", "stop_reason": "repetition_detected"},
        },
    ),
    "/v1/messages": (
        {"messages": MESSAGES, "max_tokens": 99},
        {"stop_reason": "max_tokens", "stop_details": {"type": "repetition_detected"}},
    ),
    "/api/chat": ({"messages": MESSAGES}, {"done_reason": "length", "stop_reason": "repetition_detected"}),
    "/api/generate": ({"prompt": "Hi"}, {"done_reason": "length", "stop_reason": "repetition_detected"}),
    "/tgi/generate": ({"inputs": "Hi", "parameters": {"details": True}}, {"finish_reason": "length"}),
}
LOOPED = saying("ab", "ab", reason="length", eos=False, repetition=True)
each_route = pytest.mark.parametrize("path", ROUTES)


def members(value: Any) -> list[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, list):
        return [found for item in cast(list[Any], value) for found in members(item)]
    if isinstance(value, dict):
        own = cast(dict[str, Any], value)
        return [own, *(found for item in own.values() for found in members(item))]
    return []


def last_of_stream(text: str) -> list[Any]:
    lines = (line.removeprefix("data: ").removeprefix("data:") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


@each_route
@pytest.mark.parametrize("is_stream", [False, True])
async def test_each_dialect_says_that_the_text_repeated_itself(path: str, is_stream: bool) -> None:
    body, expected = ROUTES[path]
    if path == "/tgi/generate":
        path += "_stream" if is_stream else ""
    else:
        body = body | {"stream": is_stream}
    for script, is_said in ((LOOPED, True), (saying("ab", reason="length", eos=False), False)):
        async with http_client(FakeModels(FakeClient(script=script))) as client:
            response = await client.post(path, json={"model": "fake"} | body)
        assert response.status_code == 200, response.text
        answer = last_of_stream(response.text) if is_stream else response.json()
        found = [each for each in members(answer) if expected.items() <= each.items()]
        assert bool(found) is (is_said or "tgi" in path), response.text
        assert ("repetition_detected" in response.text) is (is_said and "tgi" not in path)


async def heard(
    path: str, fields: dict[str, Any], *, header: str = ""
) -> tuple[int, RepetitionDetection | None, str]:
    """The status, what the engine is told, and the answer."""
    told: list[RepetitionDetection | None] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        told.append(request.stopping.repetition_detection)
        async for event in saying("a")(request):
            yield event

    headers = {"x-jan-serve-stop-loops": header} if header else {}
    async with http_client(FakeModels(FakeClient(script=script))) as client:
        body = {"model": "fake"} | ROUTES[path][0] | fields
        response = await client.post(path, json=body, headers=headers)
    return response.status_code, told[0] if told else None, response.text


VLLM = {"max_pattern_size": 20, "min_pattern_size": 3, "min_count": 4}
FIELD_ROUTES = [path for path in ROUTES if path.startswith(("/v1/", "/lmdeploy")) and "messages" not in path]


@pytest.mark.parametrize("path", FIELD_ROUTES)
@pytest.mark.parametrize(
    ("field", "told"),
    [
        (VLLM, RepetitionDetection(max_pattern_size=20, min_pattern_size=3, min_count=4)),
        ({"max_pattern_size": 5, "min_count": 2}, RepetitionDetection(max_pattern_size=5, min_count=2)),
        (
            {"max_pattern_size": 5, "min_count": 2, "escape": True},
            RepetitionDetection(max_pattern_size=5, min_count=2, escapes=3),
        ),
        ({}, None),
        ({"max_pattern_size": 0, "min_count": 5}, None),
        (None, None),
    ],
)
async def test_the_field_is_that_of_vllm(path: str, field: Any, told: RepetitionDetection | None) -> None:
    status, found, text = await heard(path, {"repetition_detection": field})
    assert (status, found) == (200, told), text


@pytest.mark.parametrize("path", FIELD_ROUTES)
@pytest.mark.parametrize(
    ("field", "status", "says"),
    [
        ({"max_pattern_size": 5}, 400, "repetition_detection.min_count: must be 2 or more"),
        ({"max_pattern_size": 5, "min_count": 1}, 400, "repetition_detection.min_count: must be 2 or more"),
        ({"max_pattern_size": 5, "min_pattern_size": 6, "min_count": 2}, 400, "min_pattern_size is above"),
        ({"max_pattern_size": 5_000, "min_count": 2}, 422, "from 0 to 4096"),
        ({"max_pattern_size": -1, "min_count": 2}, 422, "from 0 to 4096"),
        (True, 422, "repetition_detection"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(path: str, field: Any, status: int, says: str) -> None:
    found, _, text = await heard(path, {"repetition_detection": field})
    status = 400 if path.startswith("/lmdeploy") and found == 400 else status
    assert found == status
    assert says in text


@each_route
@pytest.mark.parametrize("action", LOOPS)
async def test_a_header_asks_for_it_in_every_dialect(path: str, action: LoopAction) -> None:
    status, told, text = await heard(path, {}, header=action)
    assert (status, told) == (200, LOOPS[action]), text


@pytest.mark.parametrize("path", FIELD_ROUTES)
async def test_the_field_has_precedence_over_the_header(path: str) -> None:
    for field, told in (
        (VLLM, RepetitionDetection(max_pattern_size=20, min_pattern_size=3, min_count=4)),
        ({"max_pattern_size": 0}, None),
    ):
        found = await heard(path, {"repetition_detection": field}, header="escape")
        assert found[:2] == (200, told), found[2]


@each_route
async def test_a_wrong_header_is_refused(path: str) -> None:
    status, _, text = await heard(path, {}, header="yes")
    assert status in (400, 422), text
    assert "must be one of off, end, escape" in text
