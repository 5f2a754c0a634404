"""An idle server stops once, and the inner observer gets every event."""

from __future__ import annotations

from collections.abc import Callable

from jan_serve.daemon.idle_stop import IdleStop
from jan_serve.daemon.observer import ServerObserver


class RecordingObserver(ServerObserver):
    def __init__(self) -> None:
        self.events: list[str] = []

    def listening(self, stop: Callable[[], None]) -> None:
        self.events.append("listening")

    def alive(self, idle_s: float) -> None:
        self.events.append(f"alive {idle_s}")

    def stopping(self, drain_s: float) -> None:
        self.events.append(f"stopping {drain_s}")


def test_an_idle_server_stops_once() -> None:
    inner, stopped = RecordingObserver(), list[int]()
    observer = IdleStop(300, inner)
    observer.alive(1000)
    observer.listening(lambda: stopped.append(1))
    for idle_s in (0, 299, 300, 301):
        observer.alive(idle_s)
    observer.stopping(30)
    assert stopped == [1]
    assert inner.events == [
        "alive 1000",
        "listening",
        "alive 0",
        "alive 299",
        "alive 300",
        "alive 301",
        "stopping 30",
    ]


def test_an_idle_server_stops_without_an_inner_observer() -> None:
    stopped: list[int] = []
    observer = IdleStop(1, None)
    observer.listening(lambda: stopped.append(1))
    observer.alive(2)
    observer.stopping(0)
    assert stopped == [1]
