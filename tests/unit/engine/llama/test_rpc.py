"""Peers that lend devices are greeted first: ggml ends the process on those that do not greet back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from jan_serve.engine.llama import rpc
from jan_serve.engine.llama.rpc import PROTOCOL, problem_of

GREETING_BYTES = 1 + 8 + 24
GREETED = (24 + 4).to_bytes(8, "little") + bytes([*PROTOCOL, 0, 0]) + bytes(24)


@contextmanager
def peer(answer: bytes, *, hangs_up: bool = True) -> Generator[str]:
    """Reads a greeting and sends these bytes; HOST:PORT."""
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            received = b""
            while len(received) < GREETING_BYTES and (piece := connection.recv(64)):
                received += piece
            assert received[:9] == bytes([14]) + (24).to_bytes(8, "little")
            connection.sendall(answer)
            if not hangs_up:
                done.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join(30)


def test_a_peer_that_greets_back() -> None:
    with peer(GREETED, hangs_up=False) as endpoint:
        assert problem_of(endpoint) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "it hung up: its network allow-list may lack this machine"),
        (GREETED[:9], "it hung up"),
        (GREETED[:8] + bytes([PROTOCOL[0] - 1, 9, 3, 0]), f"it speaks version {PROTOCOL[0] - 1}.9.3"),
        (GREETED[:8] + bytes([PROTOCOL[0], PROTOCOL[1] + 1, 0, 0]), "it speaks version"),
    ],
    ids=["at once", "early", "older", "newer"],
)
def test_a_peer_that_cannot_be_used(answer: bytes, expected: str) -> None:
    with peer(answer) as endpoint:
        assert expected in (problem_of(endpoint) or "")


def test_a_silent_peer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_ANSWER_S", 0.05)
    with peer(b"", hangs_up=False) as endpoint:
        assert problem_of(endpoint) == "it does not answer in time, or serves another client"


def test_a_peer_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert problem_of(f"127.0.0.1:{port}") == "it cannot be reached: Connection refused"


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_peer_whose_name_cannot_be_one(host: str) -> None:
    assert problem_of(f"{host}:1") == "it cannot be reached: its name is not a host name"


def test_a_peer_is_greeted_at_the_address_that_ggml_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another address of the name may answer where that one does not, and ggml then ends the process."""
    greeted: list[object] = []

    def connect(address: object, timeout: float) -> socket.socket:
        greeted.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "gethostbyname", {"both": "192.0.2.1"}.__getitem__)
    monkeypatch.setattr(socket, "create_connection", connect)
    assert problem_of("both:50052") is not None
    assert greeted == [("192.0.2.1", 50052)]
