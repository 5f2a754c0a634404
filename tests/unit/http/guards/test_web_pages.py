"""The guards against web pages, over HTTP: Host, CORS and CSRF."""

from __future__ import annotations

import httpx
import pytest

from jan_serve.dialects.tgi.outline import OPEN_PATHS as TGI_OPEN
from tests.support.engine.fake_client import FakeModels
from tests.support.servers.fronts import http_client, refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:1337", "127.0.0.1.evil.example", "localhost.", "localhost.evil.example",
        "localhost/health?x=", "x/docs?", "a/#@b", "user@localhost", "localhost:", "localhost:abc",
        "localhost:123456", "", " ", "[::1", "[::1]evil", "0.0.0.0", "192.168.1.5", "127.0.0.1\\@evil",
    ],
)  # fmt: skip
async def test_foreign_and_malformed_names_are_refused(client: httpx.AsyncClient, host: str) -> None:
    refused(await client.get("/v1/models", headers={"host": host}), 403, "forbidden_host")


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1337", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:1337"]
)
async def test_loopback_names_are_served(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/models", headers={"host": host})).status_code == 200


async def test_configured_names_and_the_bound_address_are_served() -> None:
    async with http_client(
        host="192.168.7.7", no_auth=True, allowed_hosts=("nas.local", "box:8080")
    ) as client:
        for host, status in {
            "nas.local": 200, "NAS.local:99": 200, "box:8080": 200, "box": 403, "box:81": 403,
            "192.168.7.7:1337": 200, "192.168.7.8": 403,
        }.items():  # fmt: skip
            assert (await client.get("/health", headers={"host": host})).status_code == status, host


async def test_a_wildcard_address_does_not_open_the_list() -> None:
    async with http_client(host="0.0.0.0", no_auth=True) as client:
        for host in ("evil.example", "0.0.0.0"):
            refused(await client.get("/health", headers={"host": host}), 403, "forbidden_host")


async def test_comes_before_the_key() -> None:
    async with http_client(api_keys=("k",)) as client:
        refused(await client.get("/v1/models", headers={"host": "evil.example"}), 403, "forbidden_host")


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}

LOADING = (
    "/props?model=fake", "/lora-adapters", "/info", "/tgi/info", "/tgi/v1/models", "/distserve/engine_info",
    "/lmdeploy/distserve/engine_info",
)  # fmt: skip
"""Reads that load a model."""

FOREIGN = [
    "http://evil.com",
    "null",
    "http://localhost.evil.com",
    "https://evil.com:1337",
    "file://",
    "http://127.0.0.1.evil.com",
]


OURS = [
    "http://localhost",
    "http://localhost:3000",
    "https://127.0.0.1:8080",
    "http://[::1]:5173",
    "tauri://localhost",
]


@pytest.mark.parametrize("origin", FOREIGN)
async def test_foreign_pages_change_nothing_and_read_nothing(client: httpx.AsyncClient, origin: str) -> None:
    headers = {"origin": origin}
    refused(await client.post("/v1/chat/completions", json=CHAT, headers=headers), 403, "forbidden_origin")
    refused(await client.delete("/v1/models", headers=headers), 403, "forbidden_origin")
    response = await client.get("/v1/models", headers=headers)
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origin", FOREIGN)
async def test_foreign_preflights_are_refused(client: httpx.AsyncClient, origin: str) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",
    }
    response = await client.options("/v1/chat/completions", headers=headers)
    refused(response, 403, "forbidden_origin")
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origin", OURS)
async def test_loopback_pages_may_call(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.post(
        "/v1/chat/completions", json=CHAT, headers={"origin": origin, "sec-fetch-site": "cross-site"}
    )
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert response.headers["vary"] == "Origin"
    exposed = response.headers["access-control-expose-headers"].split(", ")
    assert {"request-id", "x-request-id", "x-jan-serve-warning", "retry-after"} <= set(exposed)
    assert "access-control-allow-credentials" not in response.headers


async def test_a_preflight_needs_no_key() -> None:
    async with http_client(api_keys=("k",)) as client:
        response = await client.options(
            "/v1/chat/completions",
            headers={
                "origin": "tauri://localhost",
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization, content-type, x-api-key",
                "access-control-request-private-network": "true",
            },
        )
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "tauri://localhost"
    assert response.headers["access-control-allow-headers"] == "authorization, content-type, x-api-key"
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-private-network"] == "true"


async def test_errors_can_be_read_by_allowed_pages() -> None:
    async with http_client(api_keys=("k",)) as client:
        response = await client.get("/v1/models", headers={"origin": "tauri://localhost"})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (
        401,
        "tauri://localhost",
    )


async def test_no_origin_is_no_page_unless_the_browser_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    for site, status in {"cross-site": 403, "same-origin": 200, "none": 200}.items():
        response = await client.post("/v1/chat/completions", json=CHAT, headers={"sec-fetch-site": site})
        assert response.status_code == status, site


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_foreign_pages_load_nothing_by_the_address_of_a_picture(site: str) -> None:
    models = FakeModels()
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    async with http_client(models) as client:
        for path in LOADING:
            for method in ("GET", "HEAD"):
                response = await client.request(method, path, headers=headers)
                assert response.status_code == 403, path
        refused(await client.get("/v1/models", headers=headers), 403, "forbidden_origin")
        link = {**headers, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        refused(await client.get("/props", headers=link), 403, "forbidden_origin")
        foreign = {**headers, "origin": "http://evil.com"}
        refused(await client.get("/props", headers=foreign), 403, "forbidden_origin")
        assert models.leased == []
        for path in ("/", "/health", *TGI_OPEN, "/lmdeploy/health"):
            assert (await client.get(path, headers=link)).status_code == 200, path
        assert (await client.get("/assets/absent.js", headers=headers)).status_code == 404


async def test_reads_of_our_own_page_of_no_page_and_of_allowed_ones_are_served() -> None:
    for headers, allowed in [
        ({"sec-fetch-site": "same-origin"}, ()),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, ()),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, ()),
        ({"sec-fetch-site": "cross-site", "origin": "https://app.example"}, ("https://app.example",)),
        ({"sec-fetch-site": "cross-site"}, ("*",)),
    ]:
        async with http_client(allowed_origins=allowed) as client:
            assert (await client.get("/v1/models", headers=headers)).status_code == 200, headers


async def test_our_own_pages_and_configured_ones_may_call() -> None:
    async with http_client(allowed_hosts=("nas.local",), allowed_origins=("https://app.example",)) as client:
        for host, origin, status in [
            ("nas.local:1337", "http://nas.local:1337", 200),
            ("nas.local:1337", "http://nas.local", 403),
            ("localhost", "https://app.example", 200),
            ("localhost", "https://APP.example", 200),
            ("localhost", "https://app.example.evil", 403),
        ]:
            headers = {"host": host, "origin": origin}
            response = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
            assert response.status_code == status, (host, origin)


async def test_a_star_allows_every_page() -> None:
    async with http_client(allowed_origins=("*",)) as client:
        response = await client.post("/v1/chat/completions", json=CHAT, headers={"origin": "http://evil.com"})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "http://evil.com")


@pytest.mark.parametrize(
    "origin",
    [
        "app://obsidian.md", "capacitor://localhost", "vscode-file://vscode-app", "https://tauri.localhost",
        "vscode-webview://1l1ocsum2m9ft4fcr0l4b6rdvqvgbc2hmi0vnl3j9ipsvr6n0h3q", "tauri://localhost",
    ],
)  # fmt: skip
async def test_their_pages_may_call(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.get("/api/version", headers={"origin": origin})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "app://evil.md", "app://obsidian.md.evil", "https://obsidian.md", "http://tauri.localhost.evil",
        "vscode-webview://a.b", "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "file://", "null",
        "vscode-webview://", "capacitor://localhost:1",
    ],
)  # fmt: skip
async def test_no_others(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.post("/api/chat", json=CHAT, headers={"origin": origin})
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (403, False)
