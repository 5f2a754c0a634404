"""Who is told about the life of the server as a process: the service manager that started it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ServerObserver(Protocol):
    """Called on the event loop; must not block or raise."""

    def listening(self, stop: Callable[[], None]) -> None:
        """Requests are answered from now on. stop: begins to drain as SIGTERM does; any thread may call it."""
        ...

    def alive(self) -> None:
        """The event loop still turns. About once a second, while draining too."""
        ...

    def stopping(self, drain_s: float) -> None:
        """Running requests have this long to end, in seconds. A second call shortens it."""
        ...


class NoObserver:
    """Nobody is told."""

    def listening(self, stop: Callable[[], None]) -> None:
        """Part of ServerObserver."""

    def alive(self) -> None:
        """Part of ServerObserver."""

    def stopping(self, drain_s: float) -> None:
        """Part of ServerObserver."""
