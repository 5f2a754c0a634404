"""Connections to nodes: where they may lead, TLS, and when a request goes over another one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import NodeNetworks, parse_node_url
from jan_serve.proxy.upstream.node_client import NodeClient, OutsideNetworks
from tests.support.clock import TurnedClock
from tests.support.servers.fake_nodes import FakeNode, Received, fake_nodes

pytestmark = pytest.mark.anyio


async def test_a_name_that_leads_elsewhere_by_now_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is checked at every connection, not when the node is added."""
    loop = asyncio.get_running_loop()

    async def moved(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(loop, "getaddrinfo", moved)
    client = NodeClient(NodeNetworks())
    with pytest.raises(OutsideNetworks, match=r"169\.254\.169\.254"):
        await client.fetch(parse_node_url("http://node.example"), "GET", "/health", limit_s=5.0)


async def test_a_name_that_dns_cannot_hold_is_a_failure_to_connect() -> None:
    client = NodeClient(NodeNetworks())
    url = parse_node_url(f"http://{'a' * 64}.example")
    with pytest.raises(NodeFailure, match="DNS") as caught:
        await client.fetch(url, "GET", "/health", limit_s=5.0)
    assert caught.value.kind is Failure.CONNECT


async def test_a_port_without_tls_is_no_https_node() -> None:
    async with fake_nodes(FakeNode()) as (node,):
        client = NodeClient(NodeNetworks(), tls=ssl.create_default_context())
        with pytest.raises(NodeFailure):
            await client.fetch(
                parse_node_url(f"https://127.0.0.1:{node.port}"), "GET", "/health", limit_s=5.0
            )


CERTIFICATES = Path(__file__).parent / "certificates"


@pytest.mark.parametrize(
    ("certificate", "words"),
    [("valid", None), ("expired", "expired"), ("other-address", "IP address mismatch")],
)
async def test_a_node_with_tls_needs_a_valid_certificate(certificate: str, words: str | None) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    authority = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    async with fake_nodes(FakeNode(tls=tls)) as (node,):
        client = NodeClient(NodeNetworks(), tls=authority)
        asking = client.fetch(parse_node_url(f"https://127.0.0.1:{node.port}"), "GET", "/health", limit_s=5.0)
        if words is None:
            assert (await asking)[0].status == 200
        else:
            with pytest.raises(NodeFailure, match=words):
                await asking
            assert not node.calls
        client.close()


@pytest.mark.parametrize(("worked_s", "dies", "posts"), [(0.5, False, 2), (0.5, True, 1), (2.0, False, 1)])
async def test_a_request_that_its_node_may_have_had_is_not_sent_again(
    worked_s: float, dies: bool, posts: int
) -> None:
    """A reset without an answer is the close of an idle connection only if it comes soon and the node still listens."""
    clock = TurnedClock()

    async def resets(request: Received, writer: asyncio.StreamWriter) -> None:
        node.routes.clear()
        clock.turn(worked_s)
        if dies:
            node.kill()
        else:
            writer.transport.abort()

    async with fake_nodes(FakeNode()) as (node,):
        client = NodeClient(NodeNetworks(), clock=clock)
        url = parse_node_url(node.url)
        await client.fetch(url, "GET", "/health", limit_s=30.0)
        node.routes["/work"] = resets
        posting = client.fetch(url, "POST", "/work", body=b"x", limit_s=30.0)
        if posts == 2:
            assert (await posting)[0].status == 200
        else:
            with pytest.raises(NodeFailure, match="without an answer") as caught:
                await posting
            assert caught.value.kind is Failure.RESET
        assert (len(node.generations), node.connections) == (posts, posts)
        client.close()
