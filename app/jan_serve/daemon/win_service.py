"""Runs the server as a Windows service: answers the Service Control Manager, and relays its stop to the server.

Needs pywin32 (the extra `windows-service`). The program hosts itself, without pythonservice.exe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from jan_serve.daemon.executor import ServiceFailed
from jan_serve.daemon.observer import ServerObserver
from jan_serve.daemon.plan import NAME, STOP_MARGIN_S


class StopRelay(ServerObserver):
    """Accepts a stop at any time, even before the server listens. Thread-safe."""

    def __init__(self, pending: Callable[[float], None]) -> None:
        """pending: receives the longest duration of a stop, in seconds."""
        self._pending = pending
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._stop_requested = False

    def request_stop(self) -> None:
        """Stop the server now, or as soon as it listens."""
        with self._lock:
            self._stop_requested = True
            stop = self._stop
        if stop is not None:
            stop()

    def listening(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop = stop
            requested = self._stop_requested
        if requested:
            stop()

    def stopping(self, drain_s: float) -> None:
        self._pending(drain_s + STOP_MARGIN_S)


def host_service(serve: Callable[[ServerObserver], int]) -> int:
    """Run `serve` as the service that the Service Control Manager is starting; blocks until it stops.

    Raises ServiceFailed if pywin32 is missing or no service is starting.
    """
    try:
        import servicemanager
        import win32service
        import win32serviceutil
    except ImportError:
        raise ServiceFailed(
            "a Windows service needs pywin32 in the environment of jan-serve: pip install pywin32"
        ) from None

    ended: list[int] = []

    class Service(win32serviceutil.ServiceFramework):
        """One per process; the framework reports when it runs and when it has stopped."""

        _svc_name_ = NAME
        _svc_display_name_ = NAME

        def __init__(self, args: list[str]) -> None:
            super().__init__(args)
            self._relay = StopRelay(self._report_stop_pending)

        def _report_stop_pending(self, seconds: float) -> None:
            # The stub lacks types.
            cast(Any, self).ReportServiceStatus(
                win32service.SERVICE_STOP_PENDING, waitHint=int(seconds * 1000)
            )

        def SvcDoRun(self) -> None:
            ended.append(serve(self._relay))

        def SvcStop(self) -> None:
            self._report_stop_pending(STOP_MARGIN_S)
            self._relay.request_stop()

        def SvcShutdown(self) -> None:
            self.SvcStop()

    servicemanager.Initialize()
    servicemanager.PrepareToHostSingle(Service)
    try:
        cast(Any, servicemanager).StartServiceCtrlDispatcher()
    except win32service.error as error:
        raise ServiceFailed(f"the Service Control Manager is not starting a service: {error}") from None
    return ended[0] if ended else 1
