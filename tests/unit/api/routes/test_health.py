from __future__ import annotations

import os

import pytest

from jan_serve.errors import EngineCrashed, ModelNotFound
from tests.support.fake_client import FakeClient, FakeModels, saying
from tests.support.fronts import http_client

pytestmark = pytest.mark.anyio


async def test_health_says_who_it_is() -> None:
    async with http_client() as client:
        response = await client.get("/health")
        head = await client.head("/health")
    body = response.json()
    assert (response.status_code, head.status_code) == (200, 200)
    assert (body["status"], body["state"], body["pid"]) == ("ok", "ready", os.getpid())
    assert body["models"] == [{"name": "fake", "state": "ready", "lost_devices": []}]


async def test_a_failed_model_degrades_and_is_not_ready() -> None:
    models = FakeModels()
    models.state = "failed"
    async with http_client(models) as client:
        assert (await client.get("/health")).json()["state"] == "degraded"
        response = await client.get("/ready")
    assert response.status_code == 503
    assert "fake" in response.json()["reason"]


async def test_a_lost_accelerator_degrades_and_is_named() -> None:
    models = FakeModels()
    models.lost_devices = ("CUDA0",)
    async with http_client(models) as client:
        body = (await client.get("/health")).json()
        assert (await client.get("/ready")).status_code == 200
    assert (body["state"], body["models"][0]["lost_devices"]) == ("degraded", ["CUDA0"])


async def test_without_models_it_is_not_ready() -> None:
    models = FakeModels()
    models.clients = ()
    async with http_client(models) as client:
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


async def test_metrics_count_requests_tokens_and_failures() -> None:
    models = FakeModels(FakeClient(script=saying("ab", "c")))
    async with http_client(models, fresh=True) as client:
        for _ in range(2):
            await client.post("/v1/completions", json={"prompt": "abcd"})
        await client.get("/v1/models/../../etc/passwd")
        models.refusal = ModelNotFound("x")
        await client.post("/v1/completions", json={"prompt": "abcd"})
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    for line in [
        'jan_serve_requests_total{route="/v1/completions",status="200"} 2.0',
        'jan_serve_requests_total{route="/v1/completions",status="404"} 1.0',
        'jan_serve_requests_total{route="unmatched",status="404"} 1.0',
        "jan_serve_prompt_tokens_total 8.0",
        "jan_serve_completion_tokens_total 6.0",
        "jan_serve_cancelled_total 0.0",
        "jan_serve_time_to_first_token_seconds_count 2.0",
        'jan_serve_model_ready{model="fake"} 1.0',
        "jan_serve_open_requests 0.0",
    ]:
        assert line in lines, line


async def test_two_applications_count_apart() -> None:
    async with http_client(fresh=True) as first, http_client(fresh=True) as second:
        await first.post("/v1/completions", json={"prompt": "a"})
        assert 'route="/v1/completions"' not in (await second.get("/metrics")).text


async def test_the_log_has_sizes_and_never_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jan_serve")
    async with http_client(FakeModels(FakeClient(script=saying("CANARY-ANSWER")))) as client:
        await client.post(
            "/v1/completions",
            json={"prompt": "CANARY-PROMPT", "model": "CANARY\nMODEL"},
            headers={"x-request-id": "abc", "authorization": "Bearer CANARY-KEY"},
        )
        await client.post("/v1/completions", json={"prompt": ["CANARY-PROMPT", 3]})
        await client.get("/health")
    lines = [record for record in caplog.records if record.name == "jan_serve.request"]
    assert [line.getMessage() for line in lines] == ["POST /v1/completions 200", "POST /v1/completions 422"]
    fields = vars(lines[0])
    assert (fields["request_id"], fields["model"], fields["prompt_tokens"], fields["completion_tokens"]) == (
        "abc", "fake", 13, 13,
    )  # fmt: skip
    assert "CANARY" not in "".join(str(vars(record)) for record in caplog.records)


async def test_an_unforeseen_error_is_logged_with_its_id_and_hidden(caplog: pytest.LogCaptureFixture) -> None:
    models = FakeModels()
    models.refusal = ZeroDivisionError("/home/secret")
    async with http_client(models, fresh=True) as client:
        response = await client.post("/v1/completions", json={"prompt": "a"}, headers={"x-request-id": "abc"})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text
    assert any("abc" in record.getMessage() and record.exc_info for record in caplog.records)


async def test_a_crash_has_a_code_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jan_serve")
    models = FakeModels()
    models.refusal = EngineCrashed("x")
    async with http_client(models, fresh=True) as client:
        await client.post("/v1/completions", json={"prompt": "a"})
    assert vars(caplog.records[-1])["error"] == "engine_crashed"
