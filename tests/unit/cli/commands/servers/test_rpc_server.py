"""Lending devices: the command and its relay."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Generator

import pytest

from jan_serve.cli.commands.servers import rpc_server
from jan_serve.cli.commands.servers.rpc_server import RpcRelay, is_admitted
from tests.unit.cli.conftest import Run


class EchoingProcess:
    """In place of a process that lends: what a client sends comes back."""

    is_alive = True

    def __init__(self, arguments: object) -> None:
        pass

    def connect(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as server:
            outer = socket.create_connection(server.getsockname())
            inner, _ = server.accept()
        threading.Thread(target=_echo, args=(inner,), daemon=True).start()
        return outer

    def stop(self) -> None:
        pass


class RefusingListener(socket.socket):
    """The system refuses the first client."""

    refuses = True

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.refuses:
            self.refuses = False
            raise OSError(24, "Too many open files")
        return super().accept()


def _echo(inner: socket.socket) -> None:
    with inner, contextlib.suppress(OSError):
        while data := inner.recv(100):
            inner.sendall(data)


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("192.168.1.7", True),
        ("::ffff:192.168.1.7", True),
        ("192.168.2.7", False),
        ("fd00::7", False),
    ],
)
def test_clients_of_the_networks_and_of_this_machine_are_admitted(host: str, admitted: bool) -> None:
    assert is_admitted(host, [ipaddress.ip_network("192.168.1.0/24")]) is admitted


@contextlib.contextmanager
def relaying(
    monkeypatch: pytest.MonkeyPatch, process: type = EchoingProcess, listener: socket.socket | None = None
) -> Generator[tuple[str, int]]:
    """The address of a relay whose processes are of this type."""
    monkeypatch.setattr(rpc_server, "LendingProcess", process)
    listener = listener or socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    address = listener.getsockname()
    relay = RpcRelay(listener, (), ())
    running = threading.Thread(target=relay.run)
    running.start()
    try:
        yield address
    finally:
        relay.close()
        running.join(20)
    assert not running.is_alive()


def is_echoed(client: socket.socket) -> bool:
    """Whether it is served; False: it is ended."""
    client.settimeout(20)
    try:
        client.sendall(b"hello")
        return client.recv(100) == b"hello"
    except ConnectionError:
        return False


def served(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, timeout=20) as client:
        return is_echoed(client)


def test_a_client_that_cannot_be_accepted_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = RefusingListener()
    with relaying(monkeypatch, listener=listener) as address:
        assert served(address)
        assert not listener.refuses


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
)
def test_a_process_that_cannot_be_started_costs_its_client_only(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Failing(EchoingProcess):
        number = 0

        def __init__(self, arguments: object) -> None:
            Failing.number += 1
            if Failing.number in (2, 3):
                raise error

    with relaying(monkeypatch, Failing) as address, socket.create_connection(address, timeout=20) as first:
        first.sendall(b"x")
        assert first.recv(100) == b"x"
        assert [served(address) for _ in range(3)] == [False, False, True]


def test_processes_end_with_a_relay_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[object] = []

    class Stopped(EchoingProcess):
        def stop(self) -> None:
            stopped.append(self)

    def fail() -> None:
        raise RuntimeError("no terminal")

    monkeypatch.setattr(rpc_server, "LendingProcess", Stopped)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(RuntimeError, match="no terminal"):
        RpcRelay(listener, (), ()).run(fail)
    assert len(stopped) == 1


def test_clients_beyond_the_limit_are_refused_until_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lasting(EchoingProcess):
        left = threading.Semaphore(0)

        def stop(self) -> None:
            self.left.release()

    monkeypatch.setattr(rpc_server, "MAX_CLIENTS", 3)
    with relaying(monkeypatch, Lasting) as address, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(4)]
        for client in clients[:3]:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        assert not is_echoed(clients[3])
        for client in clients[:3]:
            client.close()
        Lasting.left.acquire(timeout=20)
        Lasting.left.acquire(timeout=20)
        assert served(address)


def test_silent_clients_have_no_process_and_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    class Counted(EchoingProcess):
        def __init__(self, arguments: object) -> None:
            started.append(self)

    with relaying(monkeypatch, Counted) as address, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(address, timeout=20))
            for _ in range(2 * rpc_server.MAX_SILENT)
        ]
        assert served(address)
        assert silent[0].recv(1) == b"", "the oldest is dropped"
        assert is_echoed(silent[-1]), "the newest may still speak"
        assert len(started) <= 2


def test_other_machines_are_refused_without_a_network(run: Run) -> None:
    answer = run("rpc-server", "--host", "0.0.0.0")
    assert answer.status == 2
    assert "neither authentication nor encryption" in answer.err
    assert "--allow" in answer.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--host", "::1"), "llama.cpp reaches its devices by IPv4 only"),
        (("--host", "0.0.0.0", "--allow", "somewhere"), "'somewhere' is not a network"),
        (("--host", "0.0.0.0", "--allow", "0.0.0.0/0"), "is every address"),
        (("--memory", "much"), "'much' is not a size such as 24GB"),
    ],
)
def test_wrong_options(run: Run, words: tuple[str, ...], expected: str) -> None:
    answer = run("rpc-server", *words)
    assert answer.status == 2
    assert expected in " ".join(answer.err.split())
