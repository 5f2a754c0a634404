"""Nodes that sleep, drain, are lost and come back."""

from __future__ import annotations

import pytest

from jan_serve.fleet.node import NodeState
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio


async def test_sleeping_and_draining_nodes_get_nothing_and_come_back() -> None:
    nodes = FakeNode("one"), FakeNode("two")
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        for health, state in (
            ((200, {"status": "ok", "state": "asleep"}), NodeState.SLEEPING),
            ((200, {"status": "sleeping"}), NodeState.SLEEPING),
            ((503, {"status": "draining"}), NodeState.DRAINING),
        ):
            nodes[0].health = health
            await front.until_state(nodes[0], state)
            assert {(await front.chat()).json()["node"] for _ in range(5)} == {"two"}
            details = (await front.client.get("/extras/nodes")).json()["nodes"]
            assert details[0]["reason"].startswith(state.value)
        nodes[0].health = (404, {})
        await front.until_state(nodes[0], NodeState.HEALTHY)


async def test_a_lost_node_comes_back_with_the_models_that_it_has_then() -> None:
    async with fake_nodes(FakeNode(models=("m1", "m2"))) as (node,), running_proxy(node) as front:
        await node.stop()
        await front.until_state(node, NodeState.LOST)
        lost = await front.chat()
        assert lost.status_code == 503
        assert "lost" in lost.json()["message"]
        node.models = ("m2",)
        await node.start()
        await front.until_state(node, NodeState.HEALTHY)
        assert (await front.chat(model="m2")).status_code == 200
        assert (await front.chat(model="m1")).status_code == 404


async def test_a_request_that_finds_nobody_and_one_check_are_enough() -> None:
    nodes = FakeNode("one"), FakeNode("two")
    async with fake_nodes(*nodes), running_proxy(*nodes, strategy="min_expected_latency") as front:
        found = front.proxy.fleet.find(nodes[0].url)
        assert found is not None
        front.proxy.probes.unwatch(found)  # its own checks would come between
        front.proxy.probes.suspect(found)
        await front.proxy.probes.probe(found)
        assert (found.state, found.probe_failures) == (NodeState.HEALTHY, 0)
        await nodes[0].stop()
        front.proxy.probes.suspect(found)
        await front.proxy.probes.probe(found)
        assert found.state is NodeState.LOST


async def test_a_health_answer_without_end_is_a_failure() -> None:
    node = FakeNode()
    async with fake_nodes(node), running_proxy(node) as front:
        node.routes["/health"] = sending(reply(b" " * 200_000))
        await front.until_state(node, NodeState.LOST)
        found = front.proxy.fleet.find(node.url)
        assert found is not None and "65536" in found.reason


async def test_figures_that_cannot_be_end_no_probe() -> None:
    node = FakeNode()
    async with fake_nodes(node), running_proxy(node) as front:
        figures = b'{"status": "draining", "pid": 1, "uptime_s": 1' + b"0" * 400 + b"}"
        node.routes["/health"] = sending(reply(figures, 503))
        await front.until_state(node, NodeState.DRAINING)


@pytest.mark.parametrize(
    ("reported", "lives"), [({"open_requests": 2}, True), ({"open_requests": 0}, False), ({}, True)]
)
async def test_a_node_lives_unless_it_denies_having_our_requests(
    reported: dict[str, int], lives: bool
) -> None:
    node = FakeNode(health=(200, {"status": "ok", **reported}))
    async with fake_nodes(node), running_proxy(node, clock=lambda: 7.0) as front:
        found = front.proxy.fleet.find(node.url)
        assert found is not None
        await front.until_state(node, NodeState.HEALTHY)
        front.proxy.probes.unwatch(found)  # its own checks would come between
        front.proxy.fleet.assign("m1", now=7.0)
        found.lived_s = 0.0
        await front.proxy.probes.probe(found)
        assert (found.lived_s, found.counts_open) == (7.0 if lives else 0.0, bool(reported))
