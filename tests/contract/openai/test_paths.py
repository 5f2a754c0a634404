"""llama-server's paths without `/v1`, and its `/v1/health`: at the server and through the proxy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, running_proxy
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": "m", "messages": MESSAGES},
    "/completions": {"model": "m", "prompt": "Hi"},
    "/embeddings": {"model": "m", "input": "Hi"},
    "/responses": {"model": "m", "input": "Hi"},
    "/responses/input_tokens": {"model": "m", "input": "Hi"},
}
MOMENTARY = ("id", "created", "created_at", "completed_at", "output")


@pytest.mark.parametrize("path", BODIES)
async def test_the_answer_is_that_of_the_versioned_path(path: str) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        short = await client.post(path, json=BODIES[path])
        long = await client.post("/v1" + path, json=BODIES[path])
        refused = await client.post(path, json={"model": 1})
    assert short.status_code == long.status_code == 200
    assert short.json().keys() == long.json().keys()
    for name in short.json().keys() - set(MOMENTARY):
        assert short.json()[name] == long.json()[name]
    assert refused.status_code == 422 and refused.json()["error"]["type"] == "invalid_request_error"


async def test_they_need_the_key_and_are_counted_as_the_same_route() -> None:
    async with http_client(FakeModels(FakeClient(name="m")), api_keys=["secret"], fresh=True) as client:
        body = BODIES["/chat/completions"]
        assert (await client.post("/chat/completions", json=body)).status_code == 401
        key = {"authorization": "Bearer secret"}
        assert (await client.post("/chat/completions", json=body, headers=key)).status_code == 200
        metrics = (await client.get("/metrics", headers=key)).text
        assert 'route="/v1/chat/completions",status="200"' in metrics
        for method in ("GET", "HEAD"):
            assert (await client.request(method, "/v1/health")).status_code == 200
        assert (await client.get("/v1/health")).json()["status"] == "ok"


async def test_a_form_is_taken_without_the_version() -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        for path in ("/audio/transcriptions", "/v1/audio/transcriptions"):
            files = {"file": ("a.wav", b"RIFF", "audio/wav")}
            response = await client.post(path, files=files, data={"model": "m"})
            assert response.status_code == 400
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_the_paths_of_others_are_theirs() -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        assert (await client.get("/models")).status_code in (200, 404)
        assert (await client.post("/", json={"inputs": "Hi"})).json() == [{"generated_text": "HiHello."}]
        assert (await client.post("/chat/completions/", json={})).status_code == 404


async def test_the_proxy_sends_them_to_a_node() -> None:
    async with fake_nodes(FakeNode(models=("m",))) as (node,), running_proxy(node) as front:
        for path in ("/chat/completions", "/completions", "/embeddings", "/responses"):
            answer = await front.client.post(path, json=BODIES[path])
            assert answer.status_code == 200
            assert node.generations[-1].path == "/v1" + path
        assert (await front.client.get("/v1/health")).status_code == 200
