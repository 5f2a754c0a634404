"""The version that peers are held to is that of the installed library."""

from __future__ import annotations

import socket

import pytest

from jan_serve.engine.llama.rpc import PROTOCOL
from tests.integration.rpc.lending import lending

pytestmark = pytest.mark.integration
HELLO = bytes([14]) + (24).to_bytes(8, "little") + bytes(24)


def test_the_library_answers_with_our_version() -> None:
    with lending(1 << 20) as lender:
        host, _, port = lender.endpoint.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(HELLO)
            answer = b""
            while len(answer) < 11:
                piece = connection.recv(11 - len(answer))
                assert piece
                answer += piece
    assert tuple(answer[8:10]) == PROTOCOL
