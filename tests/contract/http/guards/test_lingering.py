"""Refusals arrive at clients that are still sending their request."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.http.guards import lingering
from tests.support.servers.fronts import live_server, raw_client, raw_post

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({"max_body_bytes": 4096}, (), b"413"),
        ({"api_keys": ("secret",)}, ("Connection: close",), b"401"),
        ({"max_body_bytes": 1 << 30}, ("Connection: keep-alive, Close", "Content-Encoding: gzip"), b"415"),
    ],
)
async def test_a_refused_body_is_read_to_its_end_so_that_the_refusal_arrives(
    settings: dict[str, Any], headers: tuple[str, ...], status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends everything before it reads would find a reset connection (RST) without the reason."""
    monkeypatch.setattr(lingering, "LINGER_S", 60.0)
    async with live_server(**settings) as port, raw_client(port) as client:
        await client.send(raw_post("/extras/tokenize", b" " * 20_000_000, *headers))
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"}")


async def test_a_refused_body_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.1)
    async with live_server(max_body_bytes=4096) as port, raw_client(port) as client:
        await client.send(raw_post("/extras/tokenize", b" " * 20_000_000)[:10_000])
        answer = await client.rest(limit_s=10.0)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_waits_for_leave_is_not_asked_for_when_it_is_refused() -> None:
    async with live_server(max_body_bytes=4096) as port, raw_client(port) as client:
        head = raw_post("/extras/tokenize", b" " * 5000, "Expect: 100-continue")[:-5000]
        await client.send(head)
        answer = await client.rest(limit_s=10.0)
    assert answer.startswith(b"HTTP/1.1 413 ")
