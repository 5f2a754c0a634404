"""What `/` and `/assets/` answer, to browsers and to programs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from jan_serve.api.app import create_app
from jan_serve.api.routes.page import page_router
from tests.support.compiling import translate_inline
from tests.support.fake_client import FakeModels
from tests.support.fronts import http_client, make_settings
from tests.support.page_folder import BROWSER
from tests.support.page_folder import folder as folder
from tests.support.rendering import render_inline

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
