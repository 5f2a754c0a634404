"""The lender's public side: whom it admits, and what ends it. tests/integration/rpc lends devices."""

from __future__ import annotations

import ipaddress
import socket
import threading

import pytest

from jan_serve.cli.server import rpc_relay
from jan_serve.cli.server.rpc_relay import RpcRelay, is_admitted


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
    with inner:
        inner.sendall(inner.recv(100))


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


def test_a_client_that_cannot_be_accepted_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_relay, "LendingProcess", EchoingProcess)
    listener = RefusingListener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    address = listener.getsockname()
    relay = RpcRelay(listener, (), ())
    running = threading.Thread(target=relay.run)
    running.start()
    try:
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        assert not listener.refuses
    finally:
        relay.close()
        running.join(20)
    assert not running.is_alive()
