"""A request to TGI's routes leases its model once, and returns it on every way out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest

from jan_serve.api.app import create_app
from jan_serve.core.events import TokenInfo
from jan_serve.dialects.tgi.dialect import tgi_dialect
from jan_serve.errors import Draining, EngineCrashed
from jan_serve.http.connection import HttpConnection
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, Tokenized, TokenizeRequest
from tests.contract.tgi.scripts import answers
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, fake_facts, saying
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import http_client, live_server, make_settings, raw_client, raw_post

pytestmark = pytest.mark.anyio

LIMIT_S = 30.0
CHAT = "/tgi/v1/chat/completions"
ASK: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}
CALL = '{"function": {"_name": "f"}}'
NO_CALL = '{"function": {"_name": "no_tool", "content": "x"}}'
NATIVE: dict[str, Any] = {"inputs": "Hi", "parameters": {}}


class QuickProbes(HttpConnection):
    probe_s = 0.02


class WatchedModels(FakeModels):
    """returned: set when no lease is held any more. loading: leases wait for it."""

    def __init__(self, *clients: FakeClient) -> None:
        super().__init__(*clients)
        self.wanted, self.loading, self.returned = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.loading.set()

    @contextlib.asynccontextmanager
    async def lease(self, name: str | None, ttl_s: float | None = None) -> AsyncGenerator[FakeClient]:
        self.wanted.set()
        try:
            await self.loading.wait()
            async with super().lease(name, ttl_s) as client:
                yield client
        finally:
            if self.held == 0:
                self.returned.set()

    async def all_returned(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.returned.wait()
        assert self.held == 0


def client_of(script: Script) -> FakeClient:
    return FakeClient(script=script, facts=fake_facts(n_ctx=4096))


REQUESTS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "generate": ("/generate", ("a",), NATIVE),
    "best of two": ("/generate", ("a",), {"inputs": "a", "parameters": {"best_of": 2, "do_sample": True}}),
    "generate_stream": ("/generate_stream", ("a",), NATIVE),
    "compatible stream": ("/", ("a",), {**NATIVE, "stream": True}),
    "tokenize": ("/tokenize", (), NATIVE),
    "chat_tokenize": ("/chat_tokenize", (), {"messages": ASK, "tools": [TOOL]}),
    "chat": (CHAT, ("a",), {"messages": ASK}),
    "chat stream": (CHAT, ("a",), {"messages": ASK, "stream": True}),
    "an unknown model": (CHAT, ("a",), {"messages": ASK, "model": "gpt-4"}),
    "call": (CHAT, (CALL,), {"messages": ASK, "tools": [TOOL]}),
    "call stream": (CHAT, (CALL,), {"messages": ASK, "tools": [TOOL], "stream": True}),
    "declined call": (CHAT, (NO_CALL, "text"), {"messages": ASK, "tools": [TOOL]}),
    "declined call stream": (CHAT, (NO_CALL, "text"), {"messages": ASK, "tools": [TOOL], "stream": True}),
    "completions": ("/tgi/v1/completions", ("a", "b", "c"), {"prompt": ["x", "y", "z"]}),
    "completions stream": ("/tgi/v1/completions", ("a", "b"), {"prompt": ["x", "y"], "stream": True}),
    "vertex": ("/vertex", ("a", "b"), {"instances": [{"inputs": "x"}, {"messages": ASK}]}),
    "info": ("/info", (), {}),
    "models": ("/tgi/v1/models", (), {}),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_leases_its_model_once(name: str) -> None:
    path, texts, body = REQUESTS[name]
    held: list[int] = []
    answering = answers(*texts)

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        answer = saying("a") if request.n > 1 else answering
        async for event in answer(request):
            held.append(models.held)
            yield event

    models = WatchedModels(client_of(script))
    async with http_client(models) as client:
        response = await (client.post(path, json=body) if body else client.get(path))
    assert response.status_code == 200, response.text
    assert '"error"' not in response.text
    known = [lease for lease in models.leased if lease != "gpt-4"]
    assert known == [None], models.leased
    assert models.held == 0
    assert set(held) == ({1} if texts else set())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"inputs": ""}),
        ("/generate_stream", {"inputs": ""}),
        ("/generate", {"inputs": "a", "parameters": {"truncate": 0}}),
        ("/generate", {"inputs": "a" * 5000}),
        (CHAT, {"messages": [], "tools": [TOOL]}),
        (CHAT, {"messages": ASK, "top_logprobs": 99}),
        (CHAT, {"messages": ASK, "top_logprobs": 99, "stream": True}),
        ("/tgi/v1/completions", {"prompt": ["a", ""], "stream": True}),
        ("/tgi/v1/completions", {"prompt": ["a", ""]}),
        ("/vertex", {"instances": [{"inputs": "a"}, {"inputs": ""}]}),
    ],
)
async def test_a_refused_request_returns_its_model(path: str, body: dict[str, Any]) -> None:
    models = WatchedModels(client_of(answers()))
    async with http_client(models) as client:
        response = await client.post(path, json=body)
    assert '"error"' in response.text
    assert (len(models.leased), models.held) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_failed_answer_returns_its_model(stream: bool, begun: bool) -> None:
    async def crashing(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        if begun:
            yield Accepted(request.id, 3)
            yield Chunk(0, "a", (TokenInfo(97, b"a", False, -0.5),), id=request.id)
        raise EngineCrashed("The worker ended.")

    models = WatchedModels(client_of(crashing))
    async with http_client(models) as client:
        response = await client.post(CHAT, json={"messages": ASK, "stream": stream})
    assert '"error"' in response.text
    assert (models.leased, models.held) == ([None], 0)


class SlowTokens(FakeClient):
    """Tokenises once `go_on` is set."""

    def __init__(self, script: Script) -> None:
        super().__init__(script=script, facts=fake_facts(n_ctx=4096))
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        self.asked.set()
        await self.go_on.wait()
        return await super().tokenize(request)


@pytest.mark.parametrize("stage", ["load", "tokenize", "queue", "answer"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [TOOL]])
async def test_a_client_that_leaves_returns_the_model(
    stage: str, stream: bool, tools: list[dict[str, Any]]
) -> None:
    begun = asyncio.Event()

    async def endless(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        if stage == "answer":
            yield Accepted(request.id, 3)
            yield Chunk(0, "a", (TokenInfo(97, b"a", False, -0.5),), id=request.id)
        begun.set()
        await asyncio.Event().wait()

    client = SlowTokens(endless)
    models = WatchedModels(client)
    if stage == "load":
        models.loading.clear()
    if stage != "tokenize":
        client.go_on.set()
    reached = {"load": models.wanted, "tokenize": client.asked}.get(stage, begun)
    body = json.dumps({"messages": ASK, "stream": stream, "tools": tools}).encode()
    async with live_server(models, connection=QuickProbes) as port:
        async with raw_client(port) as raw:
            await raw.send(raw_post(CHAT, body))
            async with asyncio.timeout(LIMIT_S):
                await reached.wait()
        await models.all_returned()
    assert len(models.leased) == (0 if stage == "load" else 1)


@pytest.mark.parametrize("stage", ["tokenize", "answer"])
@pytest.mark.parametrize("path", ["/generate", "/generate_stream", "/tgi/v1/completions"])
async def test_a_server_that_stops_returns_the_model(path: str, stage: str) -> None:
    begun = asyncio.Event()

    async def endless(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        begun.set()
        await asyncio.Event().wait()

    fake = SlowTokens(endless)
    models = WatchedModels(fake)
    if stage == "answer":
        fake.go_on.set()
    app = create_app(make_settings(), models, render_inline, translate_inline, dialects=(tgi_dialect,))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        body = {**NATIVE, "prompt": ["a", "b"]}
        asking = asyncio.create_task(client.post(path, json=body))
        async with asyncio.timeout(LIMIT_S):
            await (fake.asked if stage == "tokenize" else begun).wait()
        app.state.parts.running.expire_all(Draining("stopping"))
        response = await asking
    assert "stopping" in response.text
    assert (models.leased, models.held, len(app.state.parts.running)) == ([None], 0, 0)
