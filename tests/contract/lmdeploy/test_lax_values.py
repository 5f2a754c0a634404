"""LMDeploy's server reads booleans and numbers from text, as pydantic does unless it is told to be strict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.contract.lmdeploy.support import http_client
from tests.support.engine.fake_client import FakeClient, FakeModels, saying

pytestmark = pytest.mark.anyio

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/lmdeploy/v1/chat/completions", CHAT),
    ("/lmdeploy/v1/completions", {"model": "m", "prompt": "Hi"}),
    ("/lmdeploy/generate", {"prompt": "Hi"}),
]
EXACT: dict[str, Any] = {"top_p": 0.5, "temperature": 0.25, "max_tokens": 7, "ignore_eos": True, "top_k": 9}
LAX: dict[str, Any] = {
    "top_p": "0.5", "temperature": "0.25", "max_tokens": "7", "ignore_eos": "yes", "top_k": "9",
}  # fmt: skip


async def posted(path: str, body: dict[str, Any]) -> tuple[int, str, EngineRequest | None]:
    """Status, content type, and what the engine got."""
    requests: list[EngineRequest] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        requests.append(request)
        async for event in saying("a")(request):
            yield event

    async with http_client(FakeModels(FakeClient(name="m", script=script))) as client:
        response = await client.post(path, json=body)
    return response.status_code, response.headers["content-type"], requests[0] if requests else None


@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_numbers_are_read_from_text(path: str, body: dict[str, Any]) -> None:
    (_, _, exact), (status, _, lax) = await posted(path, body | EXACT), await posted(path, body | LAX)
    assert status == 200 and exact is not None and lax is not None
    assert (lax.sampling.top_p, lax.sampling.temperature, lax.sampling.top_k) == (0.5, 0.25, 9)
    assert lax.stopping == exact.stopping


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize(
    ("stream", "streams"),
    [
        ("true", True), ("True", True), ("1", True), (1, True), ("on", True), (1.0, True), (True, True),
        ("false", False), ("off", False), (0, False), ("no", False), (False, False), (None, False),
    ],
)  # fmt: skip
async def test_booleans_are_read_from_text(
    path: str, body: dict[str, Any], stream: object, streams: bool
) -> None:
    status, content_type, _ = await posted(path, body | {"stream": stream})
    assert (status, content_type.startswith("text/event-stream")) == (200, streams)


@pytest.mark.parametrize(("path", "body"), ROUTES)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream", "maybe"), ("stream", 2), ("stream", []), ("temperature", "hot"), ("max_tokens", "1.5"),
        ("max_tokens", 1.5), ("top_k", ""), ("stop", 3), ("ignore_eos", {}),
    ],
)  # fmt: skip
async def test_what_is_no_boolean_or_number_is_refused(
    path: str, body: dict[str, Any], field: str, value: object
) -> None:
    status, _, request = await posted(path, body | {field: value})
    assert (status, request) == (422, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/encode", {"input": "a", "add_bos": "false"}),
        ("/lmdeploy/v1/encode", {"input": ["a"], "do_preprocess": "0"}),
        ("/abort_request", {"session_id": "3", "abort_all": "false"}),
        ("/lmdeploy/abort_request", {"abort_all": "true"}),
    ],
)
async def test_other_routes_read_them_too(path: str, body: dict[str, Any]) -> None:
    status, _, _ = await posted(path, body)
    assert status != 422
