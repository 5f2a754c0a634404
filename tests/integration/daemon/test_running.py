"""Sockets of a service manager: inherited if suitable, else rejected with a reason."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.activation import activated

posix_only = pytest.mark.skipif(os.name != "posix", reason="descriptors are passed on POSIX only")
# Runs in a process of its own, whose descriptor 3 is what the test says.
_CHILD = """
import os
from jan_serve.daemon.running import WrongSocket, inherited_socket
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
