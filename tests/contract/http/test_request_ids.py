"""Every answer has the id that `jan-serve why` takes: whole ones, streams, and errors before and in a stream."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.errors import EngineFailure
from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

_NUMBERS = itertools.count()
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/responses", {"input": "Hi"}),
    ("/v1/messages", {**CHAT, "max_tokens": 5}),
    ("/api/chat", CHAT),
    ("/api/generate", {"prompt": "Hi"}),
    ("/completion", {"prompt": "Hi"}),
    ("/tgi/generate", {"inputs": "Hi"}),
    ("/tgi/generate_stream", {"inputs": "Hi"}),
    ("/tgi/v1/chat/completions", CHAT),
    ("/lmdeploy/v1/chat/completions", CHAT),
    ("/lmdeploy/v1/completions", {"prompt": "Hi"}),
    ("/lmdeploy/generate", {"prompt": "Hi"}),
]


async def breaks(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    raise EngineFailure("the engine broke")
    yield


async def check(models: FakeModels, path: str, body: Any, *, asks_model: bool = True) -> None:
    """With the client's id, and with one that the server draws. `why` knows those that ask a model."""
    async with http_client(models) as client:
        for mine in (f"mine-{next(_NUMBERS)}", None):
            answer = await client.post(path, json=body, headers={"x-request-id": mine} if mine else {})
            name = answer.headers["x-request-id"]
            assert name == mine if mine else name.startswith("req_")
            if path == "/v1/messages":
                assert answer.headers["request-id"] == name
            why = await client.get(f"/extras/why/{name}")
            assert (why.status_code == 200) is asks_model, answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), CALLS, ids=[path for path, _ in CALLS])
async def test_answers_streams_and_errors_have_an_id(path: str, body: dict[str, Any], stream: bool) -> None:
    asked = {"model": "fake", **body, "stream": stream}
    await check(FakeModels(), path, asked)
    await check(FakeModels(FakeClient(script=breaks)), path, asked)
    await check(FakeModels(), path, {**asked, next(iter(body)): 5}, asks_model=False)
