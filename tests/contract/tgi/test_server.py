"""TGI's server besides its answers: facts, health, metrics, capacity, and its framework's rejections."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.ipc.messages import Accepted, EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, endings, fake_facts
from tests.support.servers.fronts import http_client, live_server, raw_client, raw_post

pytestmark = pytest.mark.anyio

NATIVE: dict[str, Any] = {"inputs": "Hi", "parameters": {}}
KEY = {"authorization": "Bearer k"}


async def test_more_requests_than_allowed_are_refused() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waiting(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        begun.set()
        await go_on.wait()
        for event in endings(request, 0):
            yield event

    models = FakeModels(FakeClient(script=waiting))
    async with http_client(models, tgi_max_concurrent_requests=1) as client:
        first = asyncio.create_task(client.post("/generate", json=NATIVE))
        await begun.wait()
        refused = await client.post("/generate", json=NATIVE)
        # The number of answers is checked first.
        wrong = await client.post("/generate", json={"inputs": "a", "parameters": {"best_of": 3}})
        go_on.set()
        assert (await first).status_code == 200
        assert (await client.post("/generate", json=NATIVE)).status_code == 200
    assert refused.status_code == 429
    assert refused.json() == {"error": "Model is overloaded", "error_type": "overloaded"}
    assert wrong.status_code == 422


async def test_facts() -> None:
    served = FakeModels()
    async with http_client(served, tgi_max_best_of=7, tgi_max_total_tokens=300, api_keys=("k",)) as client:
        for path in ("/info", "/tgi/info", "/tgi/v1/models", "/tgi/metrics"):
            assert (await client.get(path)).status_code == 401, path
        assert served.leased == []
        info = (await client.get("/tgi/info", headers=KEY)).json()
        models = (await client.get("/tgi/v1/models", headers=KEY)).json()
        for path in ("/tgi", "/tgi/", "/tgi/health", "/tgi/ping", "/ping"):
            response = await client.get(path)
            assert (response.status_code, response.content) == (200, b""), path
        assert (await client.post("/tgi", json=NATIVE)).status_code == 401
    assert (info["max_best_of"], info["max_total_tokens"], info["max_input_tokens"]) == (7, 300, 299)
    assert info["max_concurrent_requests"] == 128
    assert info["version"] == "3.3.6"
    assert "?" not in info["model_dtype"]
    assert models == {
        "object": "list",
        "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "fake"}],
    }


async def test_a_failed_model_is_unhealthy() -> None:
    models = FakeModels()
    models.state = "failed"
    async with http_client(models) as client:
        response = await client.get("/tgi/health")
    assert response.status_code == 503
    assert response.json() == {"error": "unhealthy", "error_type": "healthcheck"}


async def test_series_of_the_metrics() -> None:
    async with http_client(FakeModels(FakeClient(facts=fake_facts(n_ctx=200))), fresh=True) as client:
        assert b"tgi_" not in (await client.get("/metrics")).content
        await client.post("/generate", json=NATIVE)
        await client.post("/generate", json={"inputs": ""})
        await client.post("/tgi/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        page = (await client.get("/tgi/metrics")).text
        two = {"inputs": "Hi", "parameters": {"best_of": 2, "do_sample": True}}
        assert (await client.post("/generate", json=two)).status_code == 200
        page_with_best_of = (await client.get("/tgi/metrics")).text
        assert (await client.get("/metrics")).text.count("# TYPE tgi_") == page.count("# TYPE tgi_")
    types = dict(re.findall(r"# TYPE (tgi_\w+) (\w+)", page))
    assert {name: kind for name, kind in types.items() if not name.endswith("_created")} == {
        **dict.fromkeys("tgi_request_count tgi_request_success tgi_request_failure".split(), "counter"),
        **dict.fromkeys(
            "tgi_request_duration tgi_request_validation_duration tgi_request_queue_duration"
            " tgi_request_inference_duration tgi_request_mean_time_per_token_duration tgi_request_input_length"
            " tgi_request_max_new_tokens tgi_request_generated_tokens tgi_batch_next_size".split(),
            "histogram",
        ),
        **dict.fromkeys(
            "tgi_queue_size tgi_batch_current_size tgi_batch_current_max_tokens"
            " tgi_batch_max_total_tokens".split(),
            "gauge",
        ),
        "tgi_request_skipped_tokens": "summary",
    }
    assert 'tgi_batch_next_size_bucket{le="1.0"} 2.0' in page
    # Of two answers the better one is returned.
    assert "\ntgi_request_generated_tokens_count 3.0\n" in page_with_best_of
    assert "\ntgi_batch_next_size_sum 4.0\n" in page_with_best_of
    # A chat counts twice.
    assert "\ntgi_request_count 4.0\n" in page
    assert "\ntgi_request_success 2.0\n" in page
    assert '\ntgi_request_failure{err="validation"} 1.0\n' in page
    bounds = [float(bound) for bound in re.findall(r'tgi_request_duration_bucket\{le="([\d.e-]+)"\}', page)]
    assert bounds == pytest.approx([0.00015 * 1.5**step for step in range(35)])
    lengths = re.findall(r'tgi_request_input_length_bucket\{le="([\d.]+)"\}', page)
    assert (len(lengths), float(lengths[0]), float(lengths[-1])) == (100, 1.99, 199.0)
    assert 'tgi_request_skipped_tokens{quantile="0.999"} 0.0' in page


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("{}", 422, "Failed to deserialize the JSON body into the target type: inputs: Field required"),
        ('{"inputs": "a", "parameters": null}', 422, "parameters"),
        ('{"inputs": "a", "parameters": {"stop": null}}', 422, "parameters.stop"),
        ('{"inputs": "a", "parameters": {"do_sample": null}}', 422, "parameters.do_sample"),
        ('{"inputs": "a", "parameters": {"top_n_tokens": -1}}', 422, "parameters.top_n_tokens"),
        ('{"inputs": "a", "parameters": {"seed": 18446744073709551616}}', 422, "parameters.seed"),
        (
            '{"inputs": "a", "parameters": {"grammar": {"type": "gbnf", "value": ""}}}',
            422,
            "parameters.grammar",
        ),
        ('{"inputs": "a"', 400, "Failed to parse the request body as JSON: "),
        ('{"inputs":\n "a",}', 400, " trailing comma in object (byte 16)"),
        ("", 400, "The request body is empty"),
    ],
)
async def test_what_the_framework_refuses(body: str, status: int, words: str) -> None:
    async with http_client() as client:
        response = await client.post(
            "/tgi/generate", content=body, headers={"content-type": "application/json"}
        )
    assert (response.status_code, response.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert words in response.text


async def test_a_page_must_name_the_type_of_its_body() -> None:
    page = {"origin": "http://localhost:3000"}
    async with http_client() as client:
        response = await client.post("/tgi/generate", content=json.dumps(NATIVE), headers=page)
    assert response.status_code == 415
    assert response.text == "Expected request with `Content-Type: application/json`"


async def test_silence_is_filled_with_empty_comments() -> None:
    go_on = asyncio.Event()

    async def waiting(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        await go_on.wait()
        for event in endings(request, 0):
            yield event

    models = FakeModels(FakeClient(script=waiting))
    async with live_server(models, sse_ping_s=0.01) as port, raw_client(port) as client:
        await client.send(raw_post("/generate_stream", json.dumps(NATIVE).encode()))
        await client.until(b"\r\n:\n\n")
        go_on.set()
        await client.until(b"data: ")


async def test_bodies_have_a_limit_of_their_own() -> None:
    padding: dict[str, Any] = {"inputs": "a" * 3000, "messages": [], "prompt": ""}
    async with http_client(tgi_max_body_bytes=2048) as client:
        for path in (
            "/generate",
            "/",
            "/tokenize",
            "/tgi/v1/chat/completions",
            "/tgi/generate",
            "/invocations",
        ):
            response = await client.post(path, json=padding)
            assert (response.status_code, response.text) == (
                413,
                "Failed to buffer the request body: length limit exceeded",
            ), path
        # LMDeploy shares the route, not the limit.
        other = await client.post("/generate", json={"prompt": "a" * 3000, "max_tokens": 1})
        assert other.status_code != 413
        assert (await client.post("/generate", json={**NATIVE, "x": "a" * 1900})).status_code == 200


async def test_the_limit_of_bodies_is_tgis() -> None:
    async with http_client() as client:
        for size, status in ((2_000_000, 422), (2_000_001, 413)):
            body = b'{"inputs":""}'.ljust(size)
            response = await client.post(
                "/tgi/generate", content=body, headers={"content-type": "application/json"}
            )
            assert response.status_code == status


async def test_the_compute_type_can_be_set() -> None:
    async with http_client(tgi_compute_type="1-l4") as client:
        for path in ("/generate", "/generate_stream"):
            assert (await client.post(path, json=NATIVE)).headers["x-compute-type"] == "1-l4"
