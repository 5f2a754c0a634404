"""The commands of the engine thread: in order, and waited for where it has nothing else to do."""

from __future__ import annotations

import threading

from jan_serve.engine.command_queue import CommandQueue
from jan_serve.ipc.messages import AbortRequest

LIMIT_S = 30.0


def test_all_that_waits_is_taken_in_order() -> None:
    commands = CommandQueue()
    items = [AbortRequest(id=number) for number in range(3)]
    for item in items:
        commands.put(item)
    assert commands.take(wait=False) == items
    assert commands.take(wait=False) == []
    commands.put(items[0])
    assert commands.take(wait=True) == items[:1]


def test_a_thread_without_work_waits_for_the_first() -> None:
    commands, taken, item = CommandQueue(), list[object](), AbortRequest(id=1)
    thread = threading.Thread(target=lambda: taken.extend(commands.take(wait=True)), daemon=True)
    thread.start()
    commands.put(item)
    thread.join(LIMIT_S)
    assert taken == [item]


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
