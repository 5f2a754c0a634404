"""The Host guard over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.support.fronts import http_client, refused

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
