"""The side of a Windows service that runs: answers the Service Control Manager, and passes its stop on to the server.

pywin32 does the talking (the extra `windows-service`). The program hosts itself: it needs no pythonservice.exe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from jan_serve.daemon.machine import ServiceFailed
from jan_serve.daemon.plan import NAME

if TYPE_CHECKING:
    from jan_serve.api.observer import ServerObserver

_AFTER_DRAIN_S = 15.0


class StopRelay:
    """A ServerObserver that a stop reaches at any time, also before the server listens. Any thread may call it."""

    def __init__(self, pending: Callable[[float], None]) -> None:
        """pending: told for how many seconds the stop may take."""
        self._pending = pending
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._wanted = False

    def request_stop(self) -> None:
        """Stop the server, now or as soon as it listens."""
        with self._lock:
            self._wanted = True
            stop = self._stop
        if stop is not None:
            stop()

    def listening(self, stop: Callable[[], None]) -> None:
        """Part of ServerObserver."""
        with self._lock:
            self._stop = stop
            wanted = self._wanted
        if wanted:
            stop()

    def alive(self, idle_s: float) -> None:
        """Part of ServerObserver."""

    def stopping(self, drain_s: float) -> None:
        """Part of ServerObserver."""
        self._pending(drain_s + _AFTER_DRAIN_S)


def host_service(serve: Callable[[ServerObserver], int]) -> int:
    """Run `serve` as the service that the Service Control Manager is starting; blocks until it has stopped.

    Raises ServiceFailed where pywin32 is missing or nobody is starting a service.
    """
    try:
        import servicemanager
        import win32service
        import win32serviceutil
    except ImportError:
        raise ServiceFailed(
            "a Windows service needs pywin32: pip install 'jan-serve[windows-service]'"
        ) from None

    ended: list[int] = []

    class Service(win32serviceutil.ServiceFramework):
        """One per process; the framework reports that it runs and that it has stopped."""

        _svc_name_ = NAME
        _svc_display_name_ = NAME

        def __init__(self, args: list[str]) -> None:
            super().__init__(args)
            self._relay = StopRelay(self._tell_pending)

        def _tell_pending(self, seconds: float) -> None:
            # Its stub leaves types out.
            cast(Any, self).ReportServiceStatus(
                win32service.SERVICE_STOP_PENDING, waitHint=int(seconds * 1000)
            )

        def SvcDoRun(self) -> None:
            """The life of the service."""
            ended.append(serve(self._relay))

        def SvcStop(self) -> None:
            """Asked to stop."""
            self._tell_pending(_AFTER_DRAIN_S)
            self._relay.request_stop()

        def SvcShutdown(self) -> None:
            """The machine goes down."""
            self.SvcStop()

    servicemanager.Initialize()
    servicemanager.PrepareToHostSingle(Service)
    try:
        cast(Any, servicemanager).StartServiceCtrlDispatcher()
    except win32service.error as error:
        raise ServiceFailed(f"the Service Control Manager is not starting a service: {error}") from None
    return ended[0] if ended else 1
