"""Sockets of a service manager: inherited if suitable, else rejected with a reason."""

from __future__ import annotations

import ctypes
from typing import Any

from jan_serve.daemon.activation import inherited_socket, launchd_descriptors


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
