"""Every guard over HTTP, in process: rows of the reliability list that concern browsers, keys and bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest

from jan_serve.api.dialects.tgi.paths import OPEN_PATHS as TGI_OPEN
from jan_serve.api.guards.trusted_networks import TrustedNetworks
from tests.support.fake_client import FakeModels
from tests.support.fronts import http_client

pytestmark = pytest.mark.anyio

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}

ANTHROPIC_PATHS = ("/anthropic", "/v1/messages")
LMDEPLOY_PATHS = ("/lmdeploy", "/v1/encode", "/pooling")
"""Their errors are LMDeploy's."""

LOADING = (
    "/props?model=fake", "/lora-adapters", "/info", "/tgi/info", "/tgi/v1/models", "/distserve/engine_info",
    "/lmdeploy/distserve/engine_info",
)  # fmt: skip
"""Reads that load a model."""

TGI_PATHS = ("/tgi", "/generate", "/tokenize", "/chat_tokenize", "/info", "/invocations", "/vertex", "/ping")
"""Their errors are Text Generation Inference's, whose 401 has no body."""


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    async with http_client() as client:
        yield client


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.headers["content-type"] == "application/json"


class TestHost:
    @pytest.mark.parametrize(
        "host",
        [
            "evil.example", "evil.example:1337", "127.0.0.1.evil.example", "localhost.", "localhost.evil.example",
            "localhost/health?x=", "x/docs?", "a/#@b", "user@localhost", "localhost:", "localhost:abc",
            "localhost:123456", "", " ", "[::1", "[::1]evil", "0.0.0.0", "192.168.1.5", "127.0.0.1\\@evil",
        ],
    )  # fmt: skip
    async def test_foreign_and_malformed_names_are_refused(
        self, client: httpx.AsyncClient, host: str
    ) -> None:
        refused(await client.get("/v1/models", headers={"host": host}), 403, "forbidden_host")

    @pytest.mark.parametrize(
        "host", ["localhost", "LocalHost:1337", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:1337"]
    )
    async def test_loopback_names_are_served(self, client: httpx.AsyncClient, host: str) -> None:
        assert (await client.get("/v1/models", headers={"host": host})).status_code == 200

    async def test_configured_names_and_the_bound_address_are_served(self) -> None:
        async with http_client(
            host="192.168.7.7", no_auth=True, allowed_hosts=("nas.local", "box:8080")
        ) as client:
            for host, status in {
                "nas.local": 200, "NAS.local:99": 200, "box:8080": 200, "box": 403, "box:81": 403,
                "192.168.7.7:1337": 200, "192.168.7.8": 403,
            }.items():  # fmt: skip
                assert (await client.get("/health", headers={"host": host})).status_code == status, host

    async def test_a_wildcard_address_does_not_open_the_list(self) -> None:
        async with http_client(host="0.0.0.0", no_auth=True) as client:
            for host in ("evil.example", "0.0.0.0"):
                refused(await client.get("/health", headers={"host": host}), 403, "forbidden_host")

    async def test_comes_before_the_key(self) -> None:
        async with http_client(api_keys=("k",)) as client:
            refused(await client.get("/v1/models", headers={"host": "evil.example"}), 403, "forbidden_host")


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


class TestOrigin:
    @pytest.mark.parametrize("origin", FOREIGN)
    async def test_foreign_pages_change_nothing_and_read_nothing(
        self, client: httpx.AsyncClient, origin: str
    ) -> None:
        headers = {"origin": origin}
        refused(
            await client.post("/v1/chat/completions", json=CHAT, headers=headers), 403, "forbidden_origin"
        )
        refused(await client.delete("/v1/models", headers=headers), 403, "forbidden_origin")
        response = await client.get("/v1/models", headers=headers)
        assert "access-control-allow-origin" not in response.headers

    @pytest.mark.parametrize("origin", FOREIGN)
    async def test_foreign_preflights_are_refused(self, client: httpx.AsyncClient, origin: str) -> None:
        headers = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-private-network": "true",
        }
        response = await client.options("/v1/chat/completions", headers=headers)
        refused(response, 403, "forbidden_origin")
        assert not [name for name in response.headers if name.startswith("access-control")]

    @pytest.mark.parametrize("origin", OURS)
    async def test_loopback_pages_may_call(self, client: httpx.AsyncClient, origin: str) -> None:
        response = await client.post(
            "/v1/chat/completions", json=CHAT, headers={"origin": origin, "sec-fetch-site": "cross-site"}
        )
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == origin
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers

    async def test_a_preflight_needs_no_key(self) -> None:
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

    async def test_errors_can_be_read_by_allowed_pages(self) -> None:
        async with http_client(api_keys=("k",)) as client:
            response = await client.get("/v1/models", headers={"origin": "tauri://localhost"})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (
            401,
            "tauri://localhost",
        )

    async def test_no_origin_is_no_page_unless_the_browser_says_so(self, client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        for site, status in {"cross-site": 403, "same-origin": 200, "none": 200}.items():
            response = await client.post("/v1/chat/completions", json=CHAT, headers={"sec-fetch-site": site})
            assert response.status_code == status, site

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    async def test_foreign_pages_load_nothing_by_the_address_of_a_picture(self, site: str) -> None:
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

    async def test_reads_of_our_own_page_of_no_page_and_of_allowed_ones_are_served(self) -> None:
        for headers, allowed in [
            ({"sec-fetch-site": "same-origin"}, ()),
            ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, ()),
            ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, ()),
            ({"sec-fetch-site": "cross-site", "origin": "https://app.example"}, ("https://app.example",)),
            ({"sec-fetch-site": "cross-site"}, ("*",)),
        ]:
            async with http_client(allowed_origins=allowed) as client:
                assert (await client.get("/v1/models", headers=headers)).status_code == 200, headers

    async def test_our_own_pages_and_configured_ones_may_call(self) -> None:
        async with http_client(
            allowed_hosts=("nas.local",), allowed_origins=("https://app.example",)
        ) as client:
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

    async def test_a_star_allows_every_page(self) -> None:
        async with http_client(allowed_origins=("*",)) as client:
            response = await client.post(
                "/v1/chat/completions", json=CHAT, headers={"origin": "http://evil.com"}
            )
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (
            200,
            "http://evil.com",
        )


class TestKey:
    async def test_every_route_but_health_asks_for_it(self) -> None:
        async with http_client(api_keys=("s3cret", "other")) as client:
            document = (await client.get("/openapi.json", headers={"x-api-key": "other"})).json()
            routes = [(path, method) for path, methods in document["paths"].items() for method in methods]
            assert len(routes) > 8
            for path, method in [*routes, ("/openapi.json", "get"), ("/nowhere", "get"), ("/health/", "get")]:
                for headers in _wrong_keys():
                    response = await client.request(method, path, headers=headers)
                    if path in ("/health", "/lmdeploy/health") or (path in TGI_OPEN and method == "get"):
                        assert response.status_code == 200
                    elif path.startswith(TGI_PATHS) or path == "/":
                        assert (response.status_code, response.content) == (401, b"")
                        assert response.headers["www-authenticate"] == "Bearer"
                    elif path.startswith(LMDEPLOY_PATHS):
                        assert response.status_code == 401
                        assert response.json()["detail"]["error"]["code"] == "invalid_api_key"
                    elif path.startswith(ANTHROPIC_PATHS):
                        assert response.status_code == 401
                        assert response.json()["error"]["type"] == "authentication_error"
                        assert response.headers["www-authenticate"] == "Bearer"
                    elif path.startswith("/api/"):
                        assert (response.status_code, response.json()) == (401, {"error": "Invalid API key"})
                    else:
                        refused(response, 401, "invalid_api_key")
                        assert response.json()["detail"] == "Invalid API key"
                        assert response.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize(
        "headers",
        [
            {"authorization": "Bearer s3cret"}, {"authorization": "bearer  s3cret "}, {"x-api-key": "s3cret"},
            {"x-api-key": "other"}, {"authorization": "Bearer wrong", "x-api-key": "s3cret"},
        ],
    )  # fmt: skip
    async def test_a_known_key_in_either_header_opens(self, headers: dict[str, str]) -> None:
        async with http_client(api_keys=("s3cret", "other")) as client:
            assert (await client.get("/v1/models", headers=headers)).status_code == 200

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/chat/completions", CHAT),
            ("/v1/chat/completions", CHAT | {"stream": True}),
            ("/v1/completions", {"prompt": ["a", "b"]}),
            ("/v1/responses", {"input": "a"}),
            ("/generate", {"inputs": "a"}),
            ("/generate_stream", {"inputs": "a"}),
            ("/tgi/v1/chat/completions", CHAT | {"stream": True}),
            ("/lmdeploy/generate", {"prompt": "a"}),
            ("/lmdeploy/v1/chat/completions", CHAT | {"model": "fake"}),
        ],
    )
    async def test_prefixes_are_shared_by_requests_of_one_key_only(
        self, path: str, body: dict[str, Any]
    ) -> None:
        async def salts(*keys: str) -> list[str]:
            models = FakeModels()
            async with http_client(models, api_keys=keys) as client:
                for key in ("k1", "k2", "k1"):
                    answer = await client.post(path, json=body, headers={"x-api-key": key})
                    assert answer.status_code == (200 if key in keys else 401), answer.text
            return [request.cache_salt for request in models.clients[0].requests]

        several = await salts("k1", "k2")
        each = len(several) // 3
        first, second, third = several[:each], several[each : 2 * each], several[2 * each :]
        assert len({*first, *third}) == len({*second}) == 1
        assert first == third != second
        assert all(several) and not any("k1" in salt or "k2" in salt for salt in several)
        assert set(await salts("k1")) == {""}
        assert set(await salts("k1", "k2")) == set(several), "states on disk outlive the server"

    async def test_the_path_is_not_taken_from_the_host(self) -> None:
        async with http_client(api_keys=("k",)) as client:
            for host in ("localhost/health?x=", "localhost/health#"):
                assert (await client.get("/v1/models", headers={"host": host})).status_code in (400, 401, 403)


def _wrong_keys() -> list[dict[str, Any]]:
    return [
        {}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}, {"authorization": "Bearer"},
        {"authorization": "Basic s3cret"}, {"authorization": "s3cret"}, {"x-api-key": ""}, {"x-api-key": "s3cre"},
        {"x-api-key": "schlüssel".encode()}, {"authorization": b"Bearer \xff\xfe"},
    ]  # fmt: skip


class TestBody:
    @pytest.mark.parametrize(
        "content_type",
        [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
            "application/jsonx",
            "text/json",
        ],
    )
    async def test_other_types_than_json_are_refused(
        self, client: httpx.AsyncClient, content_type: str
    ) -> None:
        response = await client.post(
            "/v1/chat/completions", content=b'{"messages":[]}', headers={"content-type": content_type}
        )
        refused(response, 415, "unsupported_media_type")

    async def test_a_missing_type_is_refused(self, client: httpx.AsyncClient) -> None:
        refused(await client.post("/v1/chat/completions", content=b"{}"), 415, "unsupported_media_type")

    @pytest.mark.parametrize(
        "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
    )
    async def test_json_types_are_taken(self, client: httpx.AsyncClient, content_type: str) -> None:
        response = await client.post(
            "/extras/tokenize", content=b'{"input":"a"}', headers={"content-type": content_type}
        )
        assert response.status_code == 200

    @pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "identity, gzip"])
    async def test_compressed_bodies_are_refused(self, client: httpx.AsyncClient, encoding: str) -> None:
        headers = {"content-type": "application/json", "content-encoding": encoding}
        response = await client.post("/extras/tokenize", content=b"\x1f\x8b", headers=headers)
        refused(response, 415, "unsupported_media_type")

    async def test_the_limit_holds_with_and_without_a_length(self) -> None:
        async def chunks(count: int) -> AsyncIterator[bytes]:
            yield b'{"input":"'
            for _ in range(count):
                yield b"a" * 512
            yield b'"}'

        async with http_client(max_body_bytes=4096) as client:
            headers = {"content-type": "application/json"}
            for count, status in ((4, 200), (100, 413)):
                response = await client.post("/extras/tokenize", content=chunks(count), headers=headers)
                assert response.status_code == status
            response = await client.post("/extras/tokenize", json={"input": "a" * 5000})
            refused(response, 413, "body_too_large")
            assert response.headers["connection"] == "close"
            assert "4096" in response.json()["error"]["message"]

    async def test_nesting_is_refused_over_http(self, client: httpx.AsyncClient) -> None:
        for body in (b'{"x":' + b"[" * 20000 + b"]" * 20000 + b"}", b'{"tools":' + b"[" * 20000):
            response = await client.post(
                "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
            )
            refused(response, 400, "invalid_json")

    @pytest.mark.parametrize("body", [b"\xff\xfe", b'{"messages": "\\ud800"}', b"not json", b"{'a':1}", b" "])
    async def test_bad_text_is_refused_over_http(self, client: httpx.AsyncClient, body: bytes) -> None:
        response = await client.post(
            "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
        refused(response, 400, "invalid_json")


class TestRouting:
    @pytest.mark.parametrize(
        "path", ["/actuator/env", "/v1/models/", "/v1", "//v1/models", "/v1/chat/completions/x", "/docs"]
    )
    async def test_unknown_routes_are_404(self, client: httpx.AsyncClient, path: str) -> None:
        response = await client.get(f"http://localhost{path}")
        assert response.status_code == 404
        assert response.json()["error"]["code"] in ("not_found", "model_not_found")

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("PUT", "/v1/models", "GET"), ("POST", "/health", "GET, HEAD"), ("GET", "/v1/chat/completions", "POST"),
            ("DELETE", "/extras/tokenize", "POST"), ("PATCH", "/metrics", "GET"),
        ],
    )  # fmt: skip
    async def test_other_methods_are_405_and_say_what_is_allowed(
        self, client: httpx.AsyncClient, method: str, path: str, allowed: str
    ) -> None:
        response = await client.request(method, path)
        refused(response, 405, "method_not_allowed")
        assert response.headers["allow"] == allowed


class TestRequestId:
    async def test_a_harmless_id_is_echoed_and_others_are_replaced(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/health", headers={"x-request-id": "abc-1.2_3"})
        assert response.headers["x-request-id"] == "abc-1.2_3"
        for bad in ("a b", "x" * 129, "<script>", "é"):
            response = await client.get("/health", headers=[(b"x-request-id", bad.encode())])
            assert response.headers["x-request-id"].startswith("req_")

    async def test_every_answer_has_one_and_a_time(self, client: httpx.AsyncClient) -> None:
        for path in ("/health", "/v1/models", "/nowhere"):
            response = await client.get(path)
            assert response.headers["x-request-id"].startswith("req_")
            assert int(response.headers["openai-processing-ms"]) >= 0


class TestDesktopApplications:
    @pytest.mark.parametrize(
        "origin",
        [
            "app://obsidian.md", "capacitor://localhost", "vscode-file://vscode-app", "https://tauri.localhost",
            "vscode-webview://1l1ocsum2m9ft4fcr0l4b6rdvqvgbc2hmi0vnl3j9ipsvr6n0h3q", "tauri://localhost",
        ],
    )  # fmt: skip
    async def test_their_pages_may_call(self, client: httpx.AsyncClient, origin: str) -> None:
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
    async def test_no_others(self, client: httpx.AsyncClient, origin: str) -> None:
        response = await client.post("/api/chat", json=CHAT, headers={"origin": origin})
        assert (response.status_code, "access-control-allow-origin" in response.headers) == (403, False)


class TestTrustedNetworks:
    @staticmethod
    def may_call(address: str, path: str = "/api/chat", *headers: bytes) -> bool:
        networks = TrustedNetworks(("192.168.1.0/24", "fd00::/8"), ("/api/chat", "/api/tags"))
        scope = {"path": path, "client": (address, 1), "headers": [(name, b"x") for name in headers]}
        return networks.may_call(scope)

    def test_addresses_and_routes(self) -> None:
        for address in ("192.168.1.7", "fd12::1", "::ffff:192.168.1.7"):
            assert self.may_call(address)
            assert self.may_call(address, "/api/tags/x")
            assert not self.may_call(address, "/api/chats")
            assert not self.may_call(address, "/v1/chat/completions")
        for address in ("192.168.2.7", "127.0.0.1", "::1", "fe80::1%eth0", "testclient", ""):
            assert not self.may_call(address)

    @pytest.mark.parametrize("header", [b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"])
    def test_what_a_proxy_forwards_is_from_anywhere(self, header: bytes) -> None:
        assert not self.may_call("192.168.1.7", "/api/chat", header)

    def test_a_client_without_an_address(self) -> None:
        networks = TrustedNetworks(("192.168.1.0/24",), ("/api",))
        assert not networks.may_call({"path": "/api/chat", "client": None, "headers": []})

    async def test_no_network_is_trusted_by_default(self) -> None:
        async with http_client(api_keys=("k",)) as client:
            assert (await client.get("/api/version")).status_code == 401

    async def test_the_others_need_the_key(self) -> None:
        async with http_client(api_keys=("k",), open_networks=("127.0.0.0/8",)) as client:
            assert (await client.get("/api/version")).status_code == 200
            assert (await client.get("/v1/models")).status_code == 401
            assert (await client.post("/api/pull", json={"model": "x"})).status_code == 401
            assert (await client.get("/api/version", headers={"via": "1.1 x"})).status_code == 401
        async with http_client(api_keys=("k",), open_networks=("10.0.0.0/8",)) as client:
            assert (await client.get("/api/version")).status_code == 401
