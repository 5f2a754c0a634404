"""The commands of the engine thread: in order, and waited for where it has nothing else to do."""

from __future__ import annotations

import contextlib
import queue
import threading

import pytest

from jan_serve.engine.queues import CommandQueue, Outbox
from jan_serve.ipc.messages import AbortRequest, Chunk, Step

LIMIT_S = 30.0


def test_nothing_is_lost_between_threads() -> None:
    commands, count = CommandQueue(), 500

    def put(first: int) -> None:
        for number in range(count):
            commands.put(AbortRequest(id=first + number))

    threads = [threading.Thread(target=put, args=(start,)) for start in (0, 10_000)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while len(taken) < 2 * count:
        taken += [item.id for item in commands.take(wait=True) if isinstance(item, AbortRequest)]
    for thread in threads:
        thread.join(LIMIT_S)
    for start in (0, 10_000):
        assert [number for number in taken if start <= number < start + count] == [
            *range(start, start + count)
        ]


OUTBOX_LIMIT_S = 20.0


def step(number: int) -> Step:
    return Step((Chunk(0, "x", (), id=number),))


class Stopped(Exception):
    """What the front's end of a pipe that is closed gives."""


class Front:
    """Takes a step each time it is let."""

    def __init__(self) -> None:
        self.taken: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.turns = threading.Semaphore(0)
        self.gone = False

    def send(self, sent: Step) -> None:
        assert self.turns.acquire(timeout=OUTBOX_LIMIT_S)
        if self.gone:
            raise Stopped
        self.taken.put(sent.events[0].id)


@pytest.fixture
def front() -> Front:
    return Front()


def test_steps_leave_in_order_and_the_engine_waits_for_the_last_place(front: Front) -> None:
    outbox = Outbox(front.send, limit=3)
    ended, placed = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        with contextlib.suppress(Stopped):
            outbox.run()
        ended.set()

    def compute() -> None:
        for number in range(5):
            outbox.put(step(number))
            placed.release()

    threads = [threading.Thread(target=write), threading.Thread(target=compute)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert placed.acquire(timeout=OUTBOX_LIMIT_S)
    assert not placed.acquire(timeout=0.2), "three wait, and the fourth has no place"
    front.turns.release()
    assert front.taken.get(timeout=OUTBOX_LIMIT_S) == 0
    assert placed.acquire(timeout=OUTBOX_LIMIT_S)
    assert not placed.acquire(timeout=0.2), "nor has the fifth"
    front.turns.release(4)
    assert [front.taken.get(timeout=OUTBOX_LIMIT_S) for _ in range(4)] == [1, 2, 3, 4]
    assert placed.acquire(timeout=OUTBOX_LIMIT_S)
    front.gone = True
    outbox.put(step(5))
    front.turns.release()
    assert ended.wait(OUTBOX_LIMIT_S), "what the front's end raises comes out of run"
    for thread in threads:
        thread.join(OUTBOX_LIMIT_S)
