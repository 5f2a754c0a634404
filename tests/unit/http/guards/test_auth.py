"""Keys over HTTP: which routes ask for one, and whose prompts share a cache."""

from __future__ import annotations

import hmac
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.core.caller import client
from jan_serve.dialects.tgi.outline import OPEN_PATHS as TGI_OPEN
from jan_serve.http.guards.auth import KeyGuard, TrustedNetworks
from tests.support.engine.fake_client import FakeModels
from tests.support.servers.fronts import http_client, refused

pytestmark = pytest.mark.anyio

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}

ANTHROPIC_PATHS = ("/anthropic", "/v1/messages")

LMDEPLOY_PATHS = ("/lmdeploy", "/v1/encode", "/pooling")
"""Their errors are LMDeploy's."""

TGI_PATHS = ("/tgi", "/generate", "/tokenize", "/chat_tokenize", "/info", "/invocations", "/vertex", "/ping")
"""Their errors are Text Generation Inference's, whose 401 has no body."""


async def test_every_route_but_health_asks_for_it() -> None:
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
                elif path == "/v2/rerank":
                    assert (response.status_code, response.json()) == (401, {"message": "Invalid API key"})
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
async def test_a_known_key_in_either_header_opens(headers: dict[str, str]) -> None:
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
async def test_prefixes_are_shared_by_requests_of_one_key_only(path: str, body: dict[str, Any]) -> None:
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


def whose(address: str, key: bytes = b"", keys: tuple[str, ...] = (), program: bytes = b"") -> str:
    """The client of a request, as the engine knows it."""
    nothing: Any = None
    scope = {
        "method": "POST",
        "path": "/v1/completions",
        "client": (address, 1),
        "headers": [(b"x-api-key", key), (b"user-agent", program)],
    }
    KeyGuard(nothing, envelopes=nothing, keys=keys).check(scope)
    return client.get()


def test_a_client_is_a_key_or_else_an_address() -> None:
    assert whose("10.0.0.1") == whose("10.0.0.1") != whose("10.0.0.2")
    keys = ("k1", "k2")
    assert whose("10.0.0.1", b"k1", keys) == whose("10.0.0.2", b"k1", keys) != whose("10.0.0.1", b"k2", keys)
    assert whose("10.0.0.1", b"k1", ("k1",)) == whose("10.0.0.2", b"k1", ("k1",))
    assert "k1" not in whose("10.0.0.1", b"k1", keys)


def test_programs_of_this_machine_are_clients_of_their_own_without_keys() -> None:
    for address in ("127.0.0.1", "::1"):
        assert whose(address, program=b"editor") == whose(address, program=b"editor")
        assert whose(address, program=b"editor") != whose(address, program=b"page")
        assert whose(address, b"k", ("k",), b"editor") == whose(address, b"k", ("k",), b"page")
    assert whose("10.0.0.1", program=b"editor") == whose("10.0.0.1", program=b"page"), "it says what it likes"


async def test_the_path_is_not_taken_from_the_host() -> None:
    async with http_client(api_keys=("k",)) as client:
        for host in ("localhost/health?x=", "localhost/health#"):
            assert (await client.get("/v1/models", headers={"host": host})).status_code in (400, 401, 403)


def _wrong_keys() -> list[dict[str, Any]]:
    return [
        {}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}, {"authorization": "Bearer"},
        {"authorization": "Basic s3cret"}, {"authorization": "s3cret"}, {"x-api-key": ""}, {"x-api-key": "s3cre"},
        {"x-api-key": "schlüssel".encode()}, {"authorization": b"Bearer \xff\xfe"},
    ]  # fmt: skip


@pytest.mark.parametrize("presented", ["first", "second", "third", "none of them", ""])
async def test_each_key_is_compared_with_all_known_ones_in_constant_time(
    presented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a refusal takes shows neither which key is near nor how much of it is right."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(ours: bytes, theirs: bytes) -> bool:
        compared.append((ours, theirs))
        return hmac.compare_digest(ours, theirs)

    monkeypatch.setattr("jan_serve.http.guards.auth.hmac", SimpleNamespace(compare_digest=compare))
    keys = ("first", "second", "third")
    async with http_client(api_keys=keys) as client:
        await client.get("/v1/models", headers={"x-api-key": presented})
    assert len(compared) == len(keys)
    assert {len(value) for pair in compared for value in pair} == {32}, "digests: no length shows"


def may_call(address: str, path: str = "/api/chat", *headers: bytes) -> bool:
    networks = TrustedNetworks(("192.168.1.0/24", "fd00::/8"), ("/api/chat", "/api/tags"))
    scope = {"path": path, "client": (address, 1), "headers": [(name, b"x") for name in headers]}
    return networks.may_call(scope)


def test_addresses_and_routes() -> None:
    for address in ("192.168.1.7", "fd12::1", "::ffff:192.168.1.7"):
        assert may_call(address)
        assert may_call(address, "/api/tags/x")
        assert not may_call(address, "/api/chats")
        assert not may_call(address, "/v1/chat/completions")
    for address in ("192.168.2.7", "127.0.0.1", "::1", "fe80::1%eth0", "testclient", ""):
        assert not may_call(address)


FORWARDED = """
forwarded x-forwarded-for x-real-ip via X_Forwarded_For x-forwarded x-forwarded-host x-forwarded-proto
x-original-forwarded-for forwarded-for cf-connecting-ip cf-connecting-ipv6 cf-pseudo-connecting-ip
true-client-ip x-client-ip client-ip x_client_ip x-cluster-client-ip fastly-client-ip fly-client-ip
do-connecting-ip x-azure-clientip x-appengine-user-ip x-envoy-external-address x-remote-ip x-remote-addr
x-originating-ip x-source-ip wl-proxy-client-ip proxy-client-ip cdn-loop x-jan-serve-hops
"""
"""Names that proxies and networks of delivery use."""


@pytest.mark.parametrize("header", [name.lower().encode() for name in FORWARDED.split()])
def test_what_a_proxy_forwards_is_from_anywhere(header: bytes) -> None:
    assert not may_call("192.168.1.7", "/api/chat", header)


@pytest.mark.parametrize(
    "header",
    [
        "host",
        "user-agent",
        "x-api-key",
        "x-request-id",
        "x-stainless-os",
        "viaduct",
        "x-jan-serve-client",
        "origin",
    ],
)
def test_other_headers_say_nothing_of_a_proxy(header: str) -> None:
    assert may_call("192.168.1.7", "/api/chat", header.encode())


def test_a_client_without_an_address() -> None:
    networks = TrustedNetworks(("192.168.1.0/24",), ("/api",))
    assert not networks.may_call({"path": "/api/chat", "client": None, "headers": []})


async def test_no_network_is_trusted_by_default() -> None:
    async with http_client(api_keys=("k",)) as client:
        assert (await client.get("/api/version")).status_code == 401


async def test_the_others_need_the_key() -> None:
    async with http_client(api_keys=("k",), open_networks=("127.0.0.0/8",)) as client:
        assert (await client.get("/api/version")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.post("/api/pull", json={"model": "x"})).status_code == 401
        for forwarded in ({"via": "1.1 x"}, {"x-forwarded-for": "127.0.0.1"}):
            assert (await client.get("/api/version", headers=forwarded)).status_code == 401
    async with http_client(api_keys=("k",), open_networks=("10.0.0.0/8",)) as client:
        assert (await client.get("/api/version")).status_code == 401
