"""A server at a proxy: its registration, and how it is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.daemon.running import ServerObserver
from jan_serve.membership.member import Membership, ProxyMember, Registration, node_url
from tests.support.servers.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio
ADDED = sending(reply("Added successfully", x_jan_serve_node="it"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def member_of(
    proxy: str, url: str, role: str = "hybrid", key: str | None = None, speed: float | None = None
) -> ProxyMember:
    membership = Membership(proxy, url, role, key, speed)
    return ProxyMember(lambda: membership, renew_s=0.05, first_retry_s=0.01)


async def test_it_registers_renews_and_withdraws() -> None:
    proxy = FakeNode(routes={"/nodes/add": ADDED, "/nodes/remove": sending(reply("Deleted successfully"))})
    async with fake_nodes(proxy):
        member = member_of(proxy.url, "http://10.0.0.5:1337/lmdeploy", "decode", "secret", 3.0)
        member.listening(lambda: None)
        await until(lambda: len(proxy.calls) >= 3)
        member.stopping(1.0)
        await until(lambda: proxy.calls[-1].path == "/nodes/remove")
        first = proxy.calls[0]
        assert first.json() == {"url": "http://10.0.0.5:1337/lmdeploy", "status": {"role": 3, "speed": 3}}
        assert {call.headers["authorization"] for call in proxy.calls} == {"Bearer secret"}
        member.stopping(0.0)
        await member.left()


async def test_it_keeps_trying_and_logs_a_failure_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    proxy = FakeNode(routes={"/nodes/add": sending(reply({"message": "No."}, 403))})
    async with fake_nodes(proxy):
        member = member_of(proxy.url, "http://10.0.0.5:1337")
        member.listening(lambda: None)
        await until(lambda: len(proxy.calls) >= 4)
        assert caplog.text.count("not registered") == 1
        await proxy.stop()
        await until(lambda: caplog.text.count("not registered") == 2)
        assert "No." not in caplog.records[-1].message
        proxy.routes["/nodes/add"] = ADDED
        await proxy.start()
        await until(lambda: "registered at the proxy" in caplog.text)
        member.stopping(0.0)
        await member.left()


async def test_a_try_that_fails_in_any_way_is_not_the_last() -> None:
    errors: list[Exception] = [RuntimeError("can't start new thread"), ValueError("a defect")]

    def membership() -> Membership:
        if errors:
            raise errors.pop()
        return Membership(proxy.url, "http://10.0.0.5:1337", "hybrid")

    proxy = FakeNode(routes={"/nodes/add": ADDED, "/nodes/remove": sending(reply("Deleted successfully"))})
    async with fake_nodes(proxy):
        member = ProxyMember(membership, renew_s=0.05, first_retry_s=0.01)
        member.listening(lambda: None)
        await until(lambda: len(proxy.calls) >= 2)
        member.stopping(0.0)
        await member.left()


async def test_at_a_real_proxy_it_becomes_a_node_and_leaves() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy() as front:
        member = member_of(front.url, node.url)
        member.listening(lambda: None)
        await until(lambda: len(front.proxy.fleet) == 1)
        assert (await front.chat()).status_code == 200
        member.stopping(1.0)
        await until(lambda: len(front.proxy.fleet) == 0)


async def test_the_other_observer_is_told_the_same() -> None:
    told: list[str] = []

    class Other(ServerObserver):
        def listening(self, stop: Callable[[], None]) -> None:
            told.append("listening")

        def alive(self, idle_s: float) -> None:
            told.append("alive")

        def stopping(self, drain_s: float) -> None:
            told.append("stopping")

    membership = Membership("http://127.0.0.1:1", "http://127.0.0.1:2", "hybrid")
    member = ProxyMember(lambda: membership, Other())
    member.listening(lambda: None)
    member.alive(0.0)
    member.stopping(0.0)
    await member.left()
    assert told == ["listening", "alive", "stopping"]


@pytest.mark.parametrize(
    ("host", "role", "expected"),
    [
        ("127.0.0.1", "hybrid", "http://127.0.0.1:1337"),
        ("localhost", "prefill", "http://127.0.0.1:1337/lmdeploy"),
        ("192.168.1.5", "decode", "http://192.168.1.5:1337/lmdeploy"),
        ("0.0.0.0", "hybrid", "http://127.0.0.1:1337"),
        ("fd00::5", "hybrid", "http://[fd00::5]:1337"),
    ],
)
def test_the_url_is_the_address_that_the_proxy_can_reach(host: str, role: str, expected: str) -> None:
    assert node_url(host, 1337, "http://127.0.0.1:8000", role) == expected


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
