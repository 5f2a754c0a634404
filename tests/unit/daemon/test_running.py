"""What the running service has of its manager."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jan_serve.daemon.running import (
    IdleStop,
    ServerObserver,
    SystemdNotifier,
    inherited_socket,
    launchd_descriptors,
    systemd_notifier,
)


def test_no_socket_without_a_service_manager() -> None:
    assert inherited_socket({}, launchd_name="Listener") is None


class FakeLaunchd:
    """launch_activate_socket(3) as the manual describes it: an allocated array that the caller frees."""

    def __init__(self, descriptors: list[int], status: int = 0) -> None:
        self._status = status
        self._array = (ctypes.c_int * max(1, len(descriptors)))(*descriptors)
        self._count = len(descriptors)
        self.asked: list[bytes] = []
        self.freed = 0

    def launch_activate_socket(self, name: bytes, found: Any, count: Any) -> int:
        self.asked.append(name)
        if self._status == 0:
            found._obj.contents = self._array
            count._obj.value = self._count
        return self._status

    def free(self, found: Any) -> None:
        self.freed += 1


def test_descriptors_of_launchd_are_read_and_freed() -> None:
    library = FakeLaunchd([5, 6])
    assert launchd_descriptors(library, "Listener") == [5, 6]
    assert (library.asked, library.freed) == ([b"Listener"], 1)


def test_no_descriptors_if_launchd_did_not_start_the_process() -> None:
    library = FakeLaunchd([], status=3)
    assert launchd_descriptors(library, "Listener") == []
    assert library.freed == 0


pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


@pytest.mark.parametrize("abstract", [False, True])
def test_messages_over_the_life_of_a_service(tmp_path: Path, abstract: bool) -> None:
    name = f"@jan-serve-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.bind("\0" + name[1:] if abstract else name)
        except OSError:
            pytest.skip("this system has no abstract sockets")
        manager.settimeout(5)
        environment = {"NOTIFY_SOCKET": name, "OTHER": "stays"}
        notifier = systemd_notifier(environment)
        assert notifier is not None
        assert environment == {"OTHER": "stays"}
        notifier.listening(lambda: None)
        notifier.alive(0)
        notifier.stopping(30)
        notifier.close()
        messages = [manager.recv(1024).decode().splitlines() for _ in range(3)]
    assert messages[0][0] == "READY=1"
    assert messages[1] == ["WATCHDOG=1"]
    assert messages[2][:2] == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=45000000"]


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:1:2"}])
def test_no_notifier_without_a_usable_socket(environment: dict[str, str]) -> None:
    assert systemd_notifier(environment) is None
    assert environment == {}


def test_a_missing_manager_is_ignored(tmp_path: Path) -> None:
    notifier = SystemdNotifier(str(tmp_path / "absent"))
    notifier.alive(0)
    notifier.close()


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
