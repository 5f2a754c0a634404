"""Limits on what the proxy does for a request: redirects, retries, a drain."""

from __future__ import annotations

import asyncio

import pytest

from jan_serve.fleet.node import NodeState
from tests.support.servers.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


async def test_redirects_are_not_followed() -> None:
    elsewhere = FakeNode("elsewhere")
    await elsewhere.start()
    node = FakeNode(answer=sending(reply({}, 307, location=f"{elsewhere.url}/v1/chat/completions")))
    async with fake_nodes(node), running_proxy(node) as front:
        answer = await front.chat()
        assert answer.status_code == 307
        assert not elsewhere.calls
    await elsewhere.stop()


async def test_retries_end_when_everything_fails() -> None:
    nodes = [FakeNode(str(number), answer=sending(b"", close=True)) for number in range(6)]
    async with fake_nodes(*nodes), running_proxy(*nodes, clock=lambda: 1.0) as front:
        answers = [await front.chat() for _ in range(30)]
        assert {answer.status_code for answer in answers} == {502}
        assert front.proxy.forwarder.counts.retries <= 3 + 0.2 * 30 + 1


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
        assert found is not None and found.state is NodeState.HEALTHY
