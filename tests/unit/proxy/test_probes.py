"""How nodes are asked, and how their answers are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState, Role
from jan_serve.proxy.probes import FAILURES, JITTER, MAX_PAUSE_S, Probes, condition_of, is_model_name
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("status", "content", "state"),
    [
        (200, {"state": "ready"}, NodeState.HEALTHY),
        (200, "", NodeState.HEALTHY),
        (200, None, NodeState.HEALTHY),
        (404, {"error": "x"}, NodeState.HEALTHY),
        (405, None, NodeState.HEALTHY),
        (200, {"status": "sleeping"}, NodeState.SLEEPING),
        (200, {"state": "asleep", "status": "ok"}, NodeState.SLEEPING),
        (503, {"state": "asleep"}, NodeState.SLEEPING),
        (503, {"state": "draining"}, NodeState.DRAINING),
        (503, None, NodeState.DRAINING),
        (503, {"state": ["x"]}, NodeState.DRAINING),
    ],
)
def test_states(status: int, content: Any, state: NodeState) -> None:
    assert condition_of(status, content).state is state


@pytest.mark.parametrize(("status", "words"), [(401, "--node-key"), (500, "status 500"), (502, "status 502")])
def test_answers_that_are_failures(status: int, words: str) -> None:
    with pytest.raises(NodeFailure, match=words):
        condition_of(status, {})


def test_the_reason_is_the_nodes_word_of_bounded_length() -> None:
    assert condition_of(503, {"state": "draining"}).reason == "it says that it is draining"
    assert condition_of(503, {}).reason == "it says that it is busy"
    assert len(condition_of(503, {"state": "x" * 1000}).reason) < 80


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({"pid": 12, "uptime_s": 3.5, "open_requests": 2}, (12, 3.5, 2)),
        ({"pid": "12", "uptime_s": "3", "open_requests": "2"}, (None, None, None)),
        ({"open_requests": -1}, (None, None, None)),
        ({"open_requests": 1 << 20}, (None, None, None)),
        ({"pid": True, "uptime_s": False, "open_requests": True}, (None, None, None)),
        ({"uptime_s": 10**400}, (None, None, None)),
        ({"uptime_s": float("inf")}, (None, None, None)),
        ([1], (None, None, None)),
    ],
)
def test_figures_that_are_none_are_left_out(
    content: Any, facts: tuple[int | None, float | None, int | None]
) -> None:
    found = condition_of(200, content)
    assert (found.pid, found.uptime_s, found.open_requests) == facts


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/model:Q4", True), ("é", True), ("x" * MAX_MODEL, True), ("x" * (MAX_MODEL + 1), False), ("", False),
        ("a\nb", False), ("a\x1b[31m", False), (1, False), (None, False),
    ],
)  # fmt: skip
def test_names_of_models(name: object, expected: bool) -> None:
    assert is_model_name(name) is expected


class Silent:
    """Stands in for the client of nodes: its answers fail, the first ones with these errors."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def fetch_json(self, *_: object, **__: object) -> tuple[int, Any]:
        raise self._errors.pop(0) if self._errors else NodeFailure(Failure.CONNECT, "cannot be reached")


class Pauses:
    """The pauses between probes: each one ends when the test takes it."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[float] = asyncio.Queue()
        self._over: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self, wake: asyncio.Event, seconds: float) -> None:
        self._begun.put_nowait(seconds)
        await self._over.get()

    async def begun(self) -> float:
        """How long the next pause is, once it begins."""
        return await asyncio.wait_for(self._begun.get(), 30)

    def end(self) -> None:
        self._over.put_nowait(None)


@asynccontextmanager
async def probing(
    client: Any, pause: Callable[[asyncio.Event, float], Any]
) -> AsyncGenerator[tuple[Probes, Node]]:
    fleet = Fleet("prefix", Random(1))
    node = fleet.add("http://127.0.0.1:1", Role.HYBRID, ("m1",), None, 0.0)
    probes = Probes(
        fleet,
        client,
        lambda: 0.0,
        Random(1),
        interval_s=5.0,
        gone=lambda _: None,
        stays=lambda _: True,
        pause=pause,
    )
    try:
        yield probes, node
    finally:
        await probes.close()


@pytest.mark.parametrize("failures", [FAILURES - 1, 1023, 10**9])
async def test_the_pause_of_a_lost_node_is_bounded_however_often_it_fails(failures: int) -> None:
    pauses = Pauses()
    async with probing(Silent(), pauses) as (probes, node):
        node.probe_failures = failures
        probes.watch(node)
        pause_s = 0.0
        for number in range(1, 10):
            pause_s = await pauses.begun()
            assert (node.state, node.probe_failures) == (NodeState.LOST, failures + number)
            assert pause_s <= MAX_PAUSE_S * (1 + JITTER)
            pauses.end()
        assert pause_s >= MAX_PAUSE_S * (1 - JITTER)


async def test_an_error_of_ours_is_logged_and_the_node_is_probed_on(caplog: pytest.LogCaptureFixture) -> None:
    pauses = Pauses()
    async with probing(Silent(RuntimeError("a bug")), pauses) as (probes, node):
        probes.watch(node)
        await pauses.begun()
        assert node.probe_failures == 0
        [record] = caplog.records
        assert record.getMessage() == f"cannot probe node {node.name}"
        assert record.exc_info is not None and str(record.exc_info[1]) == "a bug"
        pauses.end()
        await pauses.begun()
        assert node.probe_failures == 1


async def test_probes_that_have_ended_begin_again_when_the_node_registers_again() -> None:
    pauses: list[float] = []

    async def ends(wake: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    async with probing(Silent(), ends) as (probes, node):
        for number in (1, 2):
            probes.watch(node)
            probes.watch(node)
            [task] = (task for task in asyncio.all_tasks() if task.get_name() == f"probe {node.name}")
            await asyncio.wait([task])
            assert len(pauses) == number
