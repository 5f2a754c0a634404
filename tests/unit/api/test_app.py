from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import httpx
import opentelemetry._logs
import opentelemetry.metrics
import opentelemetry.trace
import pytest

from jan_serve.api import app
from tests.support.documented import document
from tests.support.servers.fronts import refused

pytestmark = pytest.mark.anyio


async def test_no_request_asks_for_telemetry(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI would trace requests with whatever the environment configures."""
    asked: list[str] = []
    for module, name in (
        (opentelemetry.trace, "get_tracer_provider"),
        (opentelemetry.metrics, "get_meter_provider"),
        (opentelemetry._logs, "get_logger_provider"),
    ):
        monkeypatch.setattr(module, name, lambda name=name: asked.append(name))
    assert (await client.get("/health")).status_code == 200
    assert asked == []


def test_what_the_document_refers_to_is_there() -> None:
    """Bodies of errors are named in it, and come from one status of a route."""
    whole = document()
    text = json.dumps(whole)
    names = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', text))
    assert names <= whole["components"]["schemas"].keys()
    assert text.count('"$ref": "#/') == text.count('"$ref": "#/components/schemas/')
    body = whole["components"]["schemas"]["ErrorBody"]
    assert body["properties"]["error"]["$ref"].endswith("/ErrorDetail")
    refused = whole["paths"]["/v1/chat/completions"]["post"]["responses"]
    for status in ("400", "429", "503"):
        schema = refused[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorBody"}


@pytest.mark.parametrize(
    "path", ["/actuator/env", "/v1/models/", "/v1", "//v1/models", "/v1/chat/completions/x", "/docs"]
)
async def test_unknown_routes_are_404(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(f"http://localhost{path}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] in ("not_found", "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/models", "GET, HEAD"), ("POST", "/health", "GET, HEAD"), ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/extras/tokenize", "POST"), ("PATCH", "/metrics", "GET, HEAD"),
    ],
)  # fmt: skip
async def test_other_methods_are_405_and_say_what_is_allowed(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await client.request(method, path)
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed


async def test_a_harmless_id_is_echoed_and_others_are_replaced(client: httpx.AsyncClient) -> None:
    response = await client.get("/health", headers={"x-request-id": "abc-1.2_3"})
    assert response.headers["x-request-id"] == "abc-1.2_3"
    for bad in ("a b", "x" * 129, "<script>", "é"):
        response = await client.get("/health", headers=[(b"x-request-id", bad.encode())])
        assert response.headers["x-request-id"].startswith("req_")


async def test_every_answer_has_one_and_a_time(client: httpx.AsyncClient) -> None:
    for path in ("/health", "/v1/models", "/nowhere"):
        response = await client.get(path)
        assert response.headers["x-request-id"].startswith("req_")
        assert int(response.headers["openai-processing-ms"]) >= 0


async def test_of_models_that_see_those_that_have_shown_it_come_first() -> None:
    async def models() -> list[Any]:
        senses = {"blind": (), "new": ("vision",), "seen": ("vision",), "hears": ("audio",)}
        return [SimpleNamespace(name=name, modalities=each) for name, each in senses.items()]

    loaded = [
        SimpleNamespace(name="blind", modalities=()),
        SimpleNamespace(name="seen", modalities=("vision",)),
    ]
    management: Any = SimpleNamespace(
        library=SimpleNamespace(models=models),
        manager=SimpleNamespace(snapshot=lambda: SimpleNamespace(models=loaded)),
    )
    names = app._models_with(management)  # pyright: ignore[reportPrivateUsage]
    assert names is not None
    assert list(await names("vision")) == ["seen", "new"]
    assert list(await names("audio")) == ["hears"]
