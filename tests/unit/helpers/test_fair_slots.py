"""FairSlots: who of those that wait gets the next place."""

from __future__ import annotations

import asyncio

import pytest

from jan_serve.helpers.pool import FairSlots
from tests.support.clock import TurnedClock

pytestmark = pytest.mark.anyio


class Queue:
    """One place, and the order in which those that waited for it got it."""

    def __init__(self) -> None:
        self.clock = TurnedClock()
        self.turns = FairSlots(1, self.clock)
        self.order: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def hold(self) -> None:
        """Take the place, as one that works."""
        await self.turns.take("holder", 0)

    async def wait(self, client: str, name: str, size: int = 0) -> None:
        """One more waits, and gives its place back at once."""

        async def work() -> None:
            await self.turns.take(client, size)
            self.order.append(name)
            self.turns.leave()

        self._tasks.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    async def done(self) -> list[str]:
        """All of them in their order, once the holder has left."""
        self.turns.leave()
        await asyncio.gather(*self._tasks)
        return self.order


async def test_clients_take_turns_whatever_they_ask_for() -> None:
    queue = Queue()
    await queue.hold()
    for number in range(4):
        await queue.wait("greedy", f"greedy {number}", size=number)
    await queue.wait("other", "other 0", size=1 << 30)
    await queue.wait("other", "other 1", size=1 << 30)
    assert await queue.done() == ["greedy 0", "other 0", "greedy 1", "other 1", "greedy 2", "greedy 3"]


async def test_a_small_request_of_a_client_goes_before_a_large_one_but_not_for_ever() -> None:
    queue = Queue()
    await queue.hold()
    await queue.wait("a", "large", size=1 << 20)
    queue.clock.turn(0.5)
    await queue.wait("a", "small", size=100)
    queue.clock.turn(1.0)
    await queue.wait("a", "late", size=100)
    assert await queue.done() == ["small", "large", "late"]


@pytest.mark.parametrize("connections", [4, 12, 24])
async def test_another_client_waits_for_those_that_run_and_one_more_of_a_greedy_one(connections: int) -> None:
    """Each connection of the greedy client asks again as soon as it has its answer."""
    turns, served, waited = FairSlots(2), list[str](), list[int]()
    stop = asyncio.Event()

    async def greedy() -> None:
        while not stop.is_set():
            await turns.take("greedy", 10)
            served.append("greedy")
            await asyncio.sleep(0)
            turns.leave()

    async def other() -> None:
        before = len(served)
        await turns.take("other", 1 << 30)
        waited.append(len(served) - before)
        turns.leave()

    tasks = [asyncio.create_task(greedy()) for _ in range(connections)]
    for _ in range(50):
        await asyncio.sleep(0)
    await other()
    stop.set()
    await asyncio.gather(*tasks)
    assert waited[0] <= 3


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_place_is_freed_once_if_its_holder_and_a_waiter_leave_together(leaves_first: bool) -> None:
    turns = FairSlots(1)
    await turns.take("a", 1)
    waiting = asyncio.create_task(turns.take("b", 1))
    await asyncio.sleep(0)
    for leave in (turns.leave, waiting.cancel) if leaves_first else (waiting.cancel, turns.leave):
        leave()
    await asyncio.gather(waiting, return_exceptions=True)
    await turns.take("a", 1)
    waiting = asyncio.create_task(turns.take("b", 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    turns.leave()
    await waiting
