"""Limits of the proxy: nodes, names that lead elsewhere, redirects, retries, a drain."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from jan_serve.fleet.node import Node, Role, State
from jan_serve.proxy.upstream.connection import NodeFailure
from jan_serve.proxy.upstream.networks import NodeNetworks
from jan_serve.proxy.upstream.node_client import NodeClient, OutsideNetworks
from jan_serve.proxy.upstream.node_url import parse_node_url
from tests.support.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


async def test_the_number_of_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.proxy.node_registry.MAX_NODES", 1)
    async with fake_nodes(FakeNode(), FakeNode()) as (first, second), running_proxy(first) as front:
        refused = await front.client.post("/nodes/add", json={"url": second.url})
        assert refused.status_code == 429
        await front.add(first)


async def test_a_name_that_leads_elsewhere_by_now_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is checked at every connection, not when the node is added."""
    loop = asyncio.get_running_loop()

    async def moved(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(loop, "getaddrinfo", moved)
    client = NodeClient(NodeNetworks())
    with pytest.raises(OutsideNetworks, match=r"169\.254\.169\.254"):
        await client.fetch(parse_node_url("http://node.example"), "GET", "/health", limit_s=5.0)


async def test_redirects_are_not_followed() -> None:
    elsewhere = FakeNode("elsewhere")
    await elsewhere.start()
    node = FakeNode(answer=sending(reply({}, 307, location=f"{elsewhere.url}/v1/chat/completions")))
    async with fake_nodes(node), running_proxy(node) as front:
        answer = await front.chat()
        assert answer.status_code == 307
        assert not elsewhere.calls
    await elsewhere.stop()


async def test_a_port_without_tls_is_no_https_node() -> None:
    async with fake_nodes(FakeNode()) as (node,):
        client = NodeClient(NodeNetworks(), tls=ssl.create_default_context())
        with pytest.raises(NodeFailure):
            await client.fetch(
                parse_node_url(f"https://127.0.0.1:{node.port}"), "GET", "/health", limit_s=5.0
            )


async def test_a_linked_node_keeps_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        await front.add(node, role=2)

        def linked(node: Node) -> bool:
            return True

        monkeypatch.setattr(front.proxy.links, "has", linked)
        refused = await front.client.post("/nodes/add", json={"url": node.url, "status": {"role": 3}})
        assert refused.status_code == 409
        monkeypatch.undo()
        await front.add(node, role=3)
        found = front.proxy.fleet.find(node.url)
        assert found is not None and found.role is Role.DECODE


async def test_retries_end_when_everything_fails() -> None:
    nodes = [FakeNode(str(number), answer=sending(b"", close=True)) for number in range(6)]
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        answers = [await front.chat() for _ in range(30)]
        assert {answer.status_code for answer in answers} == {502}
        assert front.proxy.forwarder.counts.retries <= 3 + 0.2 * 30 + 1


async def test_adding_and_removing_at_once_leaves_one_node_or_none() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        for _ in range(10):
            await asyncio.gather(
                *(front.client.post("/nodes/add", json={"url": node.url}) for _ in range(3)),
                *(front.client.post("/nodes/remove", json={"url": node.url}) for _ in range(3)),
            )
            assert len(front.proxy.fleet) <= 1
        await front.add(node)
        assert (await front.chat()).status_code == 200


async def test_a_draining_proxy_finishes_its_streams_and_takes_no_more() -> None:
    go_on = asyncio.Event()

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(reply({"node": "done"}))

    async with fake_nodes(FakeNode(answer=slow)) as (node,), running_proxy(node) as front:
        asking = asyncio.create_task(front.chat())
        while not node.generations:
            await asyncio.sleep(0.001)
        front.proxy.lifecycle.draining = True
        refused = await front.chat()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        go_on.set()
        assert (await asking).json()["node"] == "done"
        found = front.proxy.fleet.find(node.url)
        assert found is not None and found.state is State.HEALTHY
