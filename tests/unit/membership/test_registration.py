"""A server at LMDeploy's proxy: what it is told, and how often."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jan_serve.membership.registration import Membership, Registration
from tests.support.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio
UNREACHABLE = '{"error_code": 10402, "text": "Failed to get response after a period of time"}\n'


class LMDeploysProxy(FakeNode):
    """Its rules for adding a node (0.12.1 to 0.18.0)."""

    def __init__(self) -> None:
        super().__init__("proxy")
        self.nodes: dict[str, Any] = {}
        self.knows_models = True
        self.routes = {"/nodes/add": self._add, "/nodes/remove": self._remove, "/nodes/status": self._status}

    async def _add(self, request: Received, writer: asyncio.StreamWriter) -> None:
        node = request.json()
        status: dict[str, Any] = {"models": [], "unfinished": 0, **node["status"]}
        if not status["models"]:
            if not self.knows_models:
                writer.write(reply(UNREACHABLE))
                return
            status["models"] = ["asked"]
        self.nodes[node["url"]] = status
        writer.write(reply("Added successfully"))

    async def _remove(self, request: Received, writer: asyncio.StreamWriter) -> None:
        self.nodes.pop(request.json()["url"], None)
        writer.write(reply("Deleted successfully"))

    async def _status(self, request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(self.nodes))

    @property
    def adds(self) -> int:
        return len([call for call in self.calls if call.path == "/nodes/add"])


async def test_it_is_not_added_again_while_it_is_listed_so_that_its_counters_stay() -> None:
    async with fake_nodes(proxy := LMDeploysProxy(), node := FakeNode(models=("m1", "m2"))):
        membership = Membership(proxy.url, node.url, "hybrid")
        registration = Registration()
        assert await registration.renew(membership) is None
        assert proxy.nodes[node.url]["models"] == ["m1", "m2"]
        adds, proxy.nodes[node.url]["unfinished"] = proxy.adds, 3
        assert await registration.renew(membership) is None
        assert (proxy.adds, proxy.nodes[node.url]["unfinished"]) == (adds, 3)
        node.models = ("m1", "m2", "pulled")
        assert await registration.renew(membership) is None
        assert proxy.nodes[node.url]["models"] == ["m1", "m2", "pulled"]
        assert await registration.withdraw(membership) is None
        assert proxy.nodes == {}
        assert await registration.renew(membership) is None
        assert list(proxy.nodes) == [node.url]


async def test_a_server_with_a_key_names_its_models_which_the_proxy_cannot_ask_for() -> None:
    async with fake_nodes(proxy := LMDeploysProxy(), node := FakeNode()):
        proxy.knows_models = False
        membership = Membership(proxy.url, node.url, "decode", key="theirs", own_key="ours")
        assert await Registration().renew(membership) is None
        assert proxy.nodes[node.url] == {"models": ["m1"], "role": 3, "unfinished": 0}
        assert {call.headers["authorization"] for call in proxy.calls} == {"Bearer theirs"}
        assert {call.headers["authorization"] for call in node.calls} == {"Bearer ours"}


@pytest.mark.parametrize("failure", [UNREACHABLE, "Failed to add, please check the input url."])
async def test_failures_that_it_reports_with_200_are_failures(failure: str) -> None:
    async with fake_nodes(proxy := LMDeploysProxy(), node := FakeNode()):
        proxy.routes["/nodes/add"] = sending(reply(failure))
        problem = await Registration().renew(Membership(proxy.url, node.url, "hybrid"))
        assert problem == json.dumps(failure)


async def test_a_server_that_cannot_reach_itself_says_so() -> None:
    async with fake_nodes(proxy := LMDeploysProxy(), node := FakeNode()):
        node.routes["/v1/models"] = sending(reply({"error": "nobody"}, 401))
        problem = await Registration().renew(Membership(proxy.url, node.url, "hybrid"))
        assert problem is not None
        assert node.url in problem
        assert "nobody" in problem


async def test_our_proxy_is_told_every_time_and_asks_for_the_models_itself() -> None:
    async with fake_nodes(node := FakeNode()), running_proxy() as front:
        registration = Registration()
        for _ in range(2):
            assert await registration.renew(Membership(front.url, node.url, "hybrid")) is None
        [found] = front.proxy.fleet
        assert not found.declares


async def test_an_answer_that_nests_without_end_is_no_list_of_nodes() -> None:
    async with fake_nodes(proxy := LMDeploysProxy(), node := FakeNode(models=("m1",))):

        async def deep(request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(b"[" * 100_000))

        proxy.routes["/nodes/status"] = deep
        assert await Registration().renew(Membership(proxy.url, node.url, "hybrid")) is None
        assert proxy.adds == 2
