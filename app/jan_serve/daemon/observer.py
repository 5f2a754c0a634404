"""Notifications about the server process, for the service manager that started it."""

from __future__ import annotations

from collections.abc import Callable


class ServerObserver:
    """Base that does nothing. Called on the event loop; must not block or raise."""

    def listening(self, stop: Callable[[], None]) -> None:
        """The server accepts requests. stop: begins a drain like SIGTERM; callable from any thread."""

    def alive(self, idle_s: float) -> None:
        """Called about once a second while the event loop runs, also during a drain.

        idle_s: time without an open request or a model in memory; probes such as /health do not count.
        """

    def stopping(self, drain_s: float) -> None:
        """Running requests have `drain_s` to end. A second call shortens it."""
