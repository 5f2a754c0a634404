"""What `/` and `/assets/` answer, to browsers and to programs."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from jan_serve.api.app import create_app
from jan_serve.api.routes.root import page_router
from jan_serve.errors import EngineCrashed, ModelNotFound
from tests.support.engine.fake_client import FakeClient, FakeModels, saying
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.page_folder import BROWSER
from tests.support.page_folder import folder as folder
from tests.support.servers.fronts import http_client, make_settings

pytestmark = pytest.mark.anyio


def page_client(folder: Path, **settings: object) -> httpx.AsyncClient:
    app = create_app(make_settings(**settings), FakeModels(), render_inline, translate_inline, page=folder)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_browsers_get_the_page_and_programs_the_greeting(folder: Path) -> None:
    async with page_client(folder) as client:
        page = await client.get("/", headers={"accept": BROWSER})
        program = await client.get("/", headers={"accept": "*/*"})
        head = await client.head("/", headers={"accept": BROWSER})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.text == "<!doctype html><title>é</title>"
    assert (program.status_code, program.content) == (200, b"Ollama is running")
    assert "content-security-policy" not in program.headers
    assert {page.headers["vary"], program.headers["vary"]} == {"Accept"}
    assert head.status_code == 200


async def test_the_page_is_held_to_its_own_files(folder: Path) -> None:
    async with page_client(folder) as client:
        response = await client.get("/", headers={"accept": BROWSER})
    policy = dict(
        rule.strip().split(" ", 1) for rule in response.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in response.headers["content-security-policy"]
    assert policy["frame-ancestors"] == "'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


async def test_hashed_assets_are_kept_for_ever_and_others_asked_for_again(folder: Path) -> None:
    async with page_client(folder) as client:
        hashed = await client.get("/assets/page-ABCDEFGH.js")
        plain = await client.get("/assets/plain.css")
        page = await client.get("/", headers={"accept": BROWSER})
        again = await client.get("/assets/plain.css", headers={"if-none-match": plain.headers["etag"]})
    assert hashed.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in hashed.headers["cache-control"]
    assert {plain.headers["cache-control"], page.headers["cache-control"]} == {"no-cache"}
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/secret.txt",
        "/assets/..%2fsecret.txt",
        "/assets/%2e%2e/secret.txt",
        "/assets/index.html",
        "/assets/",
        "/assets/page-ABCDEFGH.js/",
        "/index.html",
    ],
)
async def test_nothing_else_is_served(folder: Path, path: str) -> None:
    async with page_client(folder) as client:
        response = await client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


async def test_the_page_needs_no_key_and_what_it_calls_does(folder: Path) -> None:
    async with page_client(folder, api_keys=["k"]) as client:
        statuses = [
            (await client.get(path, headers={"accept": BROWSER})).status_code
            for path in ("/", "/assets/plain.css", "/v1/models", "/metrics")
        ]
        posted = await client.post("/", json={"inputs": "x"})
    assert statuses == [200, 200, 401, 401]
    assert posted.status_code == 401


async def test_a_foreign_host_name_does_not_get_it(folder: Path) -> None:
    async with page_client(folder) as client:
        response = await client.get("/", headers={"accept": BROWSER, "host": "evil.example"})
    assert response.status_code == 403


async def test_without_a_page_all_get_the_greeting() -> None:
    async with http_client() as client:
        response = await client.get("/", headers={"accept": BROWSER})
    assert (response.status_code, response.content) == (200, b"Ollama is running")


def test_a_damaged_folder_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        page_router(tmp_path)


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
