"""Clients that need no key, because of their network."""

from __future__ import annotations

import pytest

from jan_serve.http.guards.trusted_networks import TrustedNetworks
from tests.support.fronts import http_client

pytestmark = pytest.mark.anyio


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
