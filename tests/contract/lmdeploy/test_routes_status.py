"""LMDeploy's models, health and metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from jan_serve.api.app import create_app
from jan_serve.dialects.health import Health, ModelHealth
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.lmdeploy.routes import add_model_route, add_state_routes
from tests.contract.lmdeploy.support import http_client
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings

pytestmark = pytest.mark.anyio


async def test_models() -> None:
    async with http_client(FakeModels(FakeClient(name="one"), FakeClient(name="two"))) as client:
        reply = (await client.get("/lmdeploy/v1/models")).json()
    assert reply["object"] == "list"
    assert [(card["id"], card["root"], card["owned_by"]) for card in reply["data"]] == [
        ("one", "one", "lmdeploy"),
        ("two", "two", "lmdeploy"),
    ]
    [permission] = reply["data"][0]["permission"]
    assert permission["id"].startswith("modelperm-")
    assert permission["organization"] == "*"


class Library:
    """A model library whose models have adapters."""

    async def models(self) -> list[Any]:
        return [SimpleNamespace(name="one", adapters=("sql", "c")), SimpleNamespace(name="two", adapters=())]


async def test_adapters_are_models_too() -> None:
    services: Any = SimpleNamespace(store=Library())
    app = FastAPI()
    router = APIRouter()
    add_model_route(router, services, "")
    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        reply = (await client.get("/v1/models")).json()
    assert [card["id"] for card in reply["data"]] == ["one", "one:sql", "one:c", "two"]


async def test_health_is_open_and_in_the_form_of_0_16() -> None:
    async with http_client(api_keys=("k",)) as client:
        response = await client.get("/lmdeploy/health")
    assert response.status_code == 200
    assert response.text == '{"status":"healthy","message":"Requests are served."}'


async def test_health_and_metrics_are_served_while_the_server_drains() -> None:
    app = create_app(
        make_settings(), FakeModels(), render_inline, translate_inline, dialects=(lmdeploy_dialect,)
    )
    app.state.parts.lifecycle.draining = True
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        health = await client.get("/lmdeploy/health")
        assert (health.status_code, health.json()["status"]) == (503, "unhealthy")
        assert (await client.get("/lmdeploy/metrics")).status_code == 200
        refused = await client.get("/lmdeploy/v1/models")
        assert (refused.status_code, refused.json()["code"]) == (503, 503)


@pytest.mark.parametrize(
    ("state", "models", "status", "words"),
    [
        ("busy", {"a": "ready"}, (200, "healthy"), "are served"),
        (
            "degraded",
            {"a": "failed", "b": "ready"},
            (200, "healthy"),
            "crashed too often to be loaded again: a.",
        ),
        ("degraded", {"a": "failed", "b": "failed"}, (503, "unhealthy"), "loaded again: a, b."),
        ("degraded", {"a": "ready"}, (200, "healthy"), "are served"),
        ("asleep", {"a": "failed"}, (200, "sleeping"), "until POST /wakeup"),
        ("draining", {"a": "ready"}, (503, "unhealthy"), "shutting down"),
    ],
)
async def test_health_reports_the_state_to_a_proxy(
    state: Any, models: dict[str, str], status: tuple[int, str], words: str
) -> None:
    server = Health(
        status="draining" if state == "draining" else "ok",
        state=state,
        version="1",
        pid=1,
        uptime_s=1.0,
        open_requests=0,
        models=[ModelHealth(name=name, state=at, lost_devices=[]) for name, at in models.items()],
    )
    app, router = FastAPI(), APIRouter()
    add_state_routes(router, lambda: server, lambda: b"", "")
    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        response = await client.get("/health")
    assert (response.status_code, response.json()["status"]) == status
    assert words in response.json()["message"]


async def test_probes_leave_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jan_serve.request")
    async with http_client() as client:
        for path in ("health", "metrics", "v1/models"):
            assert (await client.get(f"/lmdeploy/{path}")).status_code == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "jan_serve.request"]
    assert lines == ["GET /lmdeploy/v1/models 200"]


SERIES = (
    "lmdeploy:prompt_tokens_total 2.0",
    "lmdeploy:generation_tokens_total 6.0",
    "lmdeploy:request_prompt_tokens_count 1.0",
    "lmdeploy:request_generation_tokens_sum 6.0",
    "lmdeploy:time_to_first_token_seconds_count 1.0",
    "lmdeploy:iter_token_latency_count 1.0",
    "lmdeploy:time_per_output_token_seconds_sum 0.06",
    "lmdeploy:e2e_request_latency_seconds_count 1.0",
    "lmdeploy:request_queue_time_seconds_sum 0.1",
    "lmdeploy:request_prefill_time_seconds_sum 0.2",
    "lmdeploy:request_decode_time_seconds_sum 0.3",
    "lmdeploy:request_inference_time_seconds_sum 0.5",
    "lmdeploy:request_success_total{stop} 1.0",
    "lmdeploy:num_requests_completed 1.0",
    "lmdeploy:num_api_requests_routed 0.0",
    "lmdeploy:num_api_requests_waiting 0.0",
    "lmdeploy:num_requests_running 0.0",
    "lmdeploy:num_requests_waiting 0.0",
    "lmdeploy:gpu_cache_usage_perc 0.0",
    "lmdeploy:iteration_tokens_total_count 0.0",
)


@pytest.mark.parametrize("path", ["/metrics", "/lmdeploy/metrics"])
async def test_metrics_count_the_requests_of_every_dialect(path: str) -> None:
    async with http_client(fresh=True) as client:
        await client.post("/v1/completions", json={"prompt": "ab"})
        page = (await client.get(path)).text
    labels = 'engine="0",'
    lines = [
        line.replace('engine="0",finished_reason="stop",model_name="fake"', "stop").replace(
            f'{{{labels}model_name="fake"}}', ""
        )
        for line in page.splitlines()
    ]
    assert set(SERIES) <= set(lines)
    assert 'lmdeploy:backend_config_info{backend="llama.cpp"' in page
