"""Who is told about the life of the server as a process: the service manager that started it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServerObserver(Protocol):
    """Called on the event loop; must not block or raise."""

    def listening(self, stop: Callable[[], None]) -> None:
        """Requests are answered from now on. stop: begins to drain as SIGTERM does; any thread may call it."""
        ...

    def alive(self, idle_s: float) -> None:
        """The event loop still turns. About once a second, while draining too.

        idle_s: for how long no request was open and no model in memory; requests for the state of health do not count.
        """
        ...

    def stopping(self, drain_s: float) -> None:
        """Running requests have this long to end, in seconds. A second call shortens it."""
        ...


class NoObserver:
    """Nobody is told."""

    def listening(self, stop: Callable[[], None]) -> None:
        """Part of ServerObserver."""

    def alive(self, idle_s: float) -> None:
        """Part of ServerObserver."""

    def stopping(self, drain_s: float) -> None:
        """Part of ServerObserver."""
