"""A server that nobody needs is stopped once, and the service manager hears everything."""

from __future__ import annotations

from collections.abc import Callable

from jan_serve.daemon.idle_stop import IdleStop


class Manager:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def listening(self, stop: Callable[[], None]) -> None:
        self.told.append("listening")

    def alive(self, idle_s: float) -> None:
        self.told.append(f"alive {idle_s}")

    def stopping(self, drain_s: float) -> None:
        self.told.append(f"stopping {drain_s}")


def test_it_stops_once() -> None:
    manager, stopped = Manager(), list[int]()
    observer = IdleStop(300, manager)
    observer.alive(1000)
    observer.listening(lambda: stopped.append(1))
    for idle_s in (0, 299, 300, 301):
        observer.alive(idle_s)
    observer.stopping(30)
    assert stopped == [1]
    assert manager.told == [
        "alive 1000",
        "listening",
        "alive 0",
        "alive 299",
        "alive 300",
        "alive 301",
        "stopping 30",
    ]


def test_without_a_manager_that_listens() -> None:
    stopped: list[int] = []
    observer = IdleStop(1, None)
    observer.listening(lambda: stopped.append(1))
    observer.alive(2)
    observer.stopping(0)
    assert stopped == [1]
