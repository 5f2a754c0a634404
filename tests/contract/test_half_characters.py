"""Half a surrogate pair, which JavaScript sends for a text cut within a character: read and shown as U+FFFD."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.ollama.support import HERMES
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

HI = '{"role":"user","content":"%s"}'
REQUESTS = {
    "/v1/chat/completions": f'{{"model":"m","messages":[{HI}]}}',
    "/v1/completions": '{"model":"m","prompt":"%s"}',
    "/v1/responses": '{"model":"m","input":"%s"}',
    "/v1/messages": f'{{"model":"m","max_tokens":9,"messages":[{HI}]}}',
    "/v1/embeddings": '{"model":"m","input":"%s"}',
    "/api/chat": f'{{"model":"m","messages":[{HI}]}}',
    "/api/generate": '{"model":"m","prompt":"%s"}',
    "/lmdeploy/v1/chat/completions": f'{{"model":"m","messages":[{HI}]}}',
    "/tgi/generate": '{"inputs":"%s"}',
    "/tgi/v1/chat/completions": f'{{"model":"m","messages":[{HI}]}}',
    "/apply-template": f'{{"model":"m","messages":[{HI}]}}',
    "/extras/tokenize": '{"model":"m","input":"%s"}',
}
TEXTS = (r"cut \ud83d", r"\udc00 cut", r"\udc00\ud83d", r"\ud83d\n", r"\ud83d\ud83d\ude00")


@pytest.mark.parametrize("path", REQUESTS)
async def test_every_route_reads_it(path: str) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        for text in TEXTS:
            body = (REQUESTS[path] % text).encode()
            response = await client.post(path, content=body, headers={"content-type": "application/json"})
            assert response.status_code == 200, response.text


PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION: dict[str, Any] = {"name": "f", "parameters": PARAMETERS}
TOOLS: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": FUNCTION}],
}
ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", TOOLS),
    ("/v1/responses", {"model": "m", "input": "Hi", "tools": [{"type": "function", **FUNCTION}]}),
    (
        "/v1/messages",
        TOOLS | {"max_tokens": 9, "tools": [{"name": "f", "input_schema": PARAMETERS}]},
    ),
    ("/api/chat", TOOLS),
    ("/lmdeploy/v1/chat/completions", TOOLS),
]
CALLS = (
    r'{"name": "f", "arguments": {"a": "\ud83d"}}',
    r'{"name": "f\ud83d", "arguments": {"a": "b"}}',
    r'{"name": "f", "arguments": "{\"a\": \"\ud83d\"}"}',
    r'{"name": "f", "arguments": "{\"a\": \"\\ud83d\"}"}',
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("written", CALLS)
@pytest.mark.parametrize(("path", "body"), ANSWERS, ids=[path for path, _ in ANSWERS])
async def test_a_call_of_the_model_that_holds_it_is_answered(
    path: str, body: dict[str, Any], written: str, stream: bool
) -> None:
    facts = fake_facts(chat_templates={"default": HERMES})
    script = saying(f"<tool_call>\n{written}\n</tool_call>")
    async with http_client(FakeModels(FakeClient(name="m", facts=facts, script=script))) as client:
        response = await client.post(path, json=body | {"stream": stream})
    assert response.status_code == 200
    assert "failed to answer" not in response.text
    if path == "/v1/messages" and not stream:
        [call] = json.loads(response.text)["content"]
        assert call["input"] == {"a": "b" if '"b"' in written else "\ufffd"}
