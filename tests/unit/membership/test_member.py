"""Registering at a proxy: when, how often, and what happens if it is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jan_serve.daemon.observer import ServerObserver
from jan_serve.membership.member import ProxyMember, node_url
from jan_serve.membership.registration import Membership
from tests.support.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio
ADDED = sending(reply("Added successfully", x_jan_serve_node="it"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
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
        await until(
            lambda: "not registered" in caplog.records[-1].message and "403" not in caplog.records[-1].message
        )
        proxy.routes["/nodes/add"] = ADDED
        await proxy.start()
        await until(lambda: "registered at the proxy" in caplog.text)
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
