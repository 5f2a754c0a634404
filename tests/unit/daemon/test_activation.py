"""Sockets of a service manager: inherited if suitable, else rejected with a reason."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jan_serve.daemon.activation import inherited_socket, launchd_descriptors
from tests.support.activation import activated

posix_only = pytest.mark.skipif(os.name != "posix", reason="descriptors are passed on POSIX only")

# Runs in a process of its own, whose descriptor 3 is what the test says.
_CHILD = """
import os
from jan_serve.daemon.activation import WrongSocket, inherited_socket
try:
    sock = inherited_socket()
except WrongSocket as error:
    print("refused:", error)
else:
    print(None if sock is None else sock.getsockname()[1])
    if sock is not None:
        print(os.get_inheritable(sock.fileno()), sock.getblocking())
print([name for name in os.environ if name.startswith("LISTEN_")])
"""


def in_child(descriptor: int, pid: str = "", count: str = "1") -> list[str]:
    """The lines of a process that was started with this descriptor as its third."""
    command = activated(descriptor, [sys.executable, "-c", _CHILD], pid=pid, count=count)
    done = subprocess.run(
        command, pass_fds=[descriptor], stdout=subprocess.PIPE, text=True, check=True, timeout=30
    )
    return done.stdout.splitlines()


def listening() -> socket.socket:
    """A TCP socket as systemd makes it."""
    return socket.create_server(("127.0.0.1", 0))


@posix_only
def test_a_socket_of_systemd_is_inherited() -> None:
    with listening() as sock:
        port = sock.getsockname()[1]
        assert in_child(sock.fileno()) == [str(port), "False False", "[]"]


@posix_only
def test_a_socket_for_another_process_is_left_alone() -> None:
    with listening() as sock:
        assert in_child(sock.fileno(), pid="1") == ["None", "[]"]


def _connected() -> socket.socket:
    one, other = socket.socketpair()
    other.close()
    return one


def _udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@posix_only
@pytest.mark.parametrize(
    ("make", "count", "words"),
    [
        (listening, "2", "passed 2 sockets instead of one"),
        (_udp, "1", "not a TCP socket"),
        (_connected, "1", "not a TCP socket"),
        (socket.socket, "1", "does not listen"),
    ],
)
def test_an_unsuitable_socket_is_rejected(make: Callable[[], socket.socket], count: str, words: str) -> None:
    with make() as sock:
        (line, _) = in_child(sock.fileno(), count=count)
    assert line.startswith("refused:")
    assert words in line


@posix_only
def test_a_file_is_rejected(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        (line, _) = in_child(file.fileno())
    assert "descriptor 3 is not a socket" in line


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
