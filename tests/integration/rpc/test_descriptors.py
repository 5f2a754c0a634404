"""A lender with few descriptors: it goes on, and takes its processes with it."""

from __future__ import annotations

import contextlib
import resource
import socket
import sys

import psutil
import pytest

from tests.integration.rpc.lending import lending
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the processes of others are read from /proc"),
]
HELLO = bytes([14]) + (24).to_bytes(8, "little") + bytes(24)


def hello(address: tuple[str, int], stack: contextlib.ExitStack) -> bool:
    """Whether a client is answered."""
    client = stack.enter_context(socket.create_connection(address, timeout=60))
    try:
        client.sendall(HELLO)
        return len(client.recv(11)) > 0
    except ConnectionError:
        return False


def test_clients_without_a_descriptor_are_refused_and_no_process_stays() -> None:
    with lending(1 << 20) as lender:
        host, _, port = lender.endpoint.rpartition(":")
        address = (host, int(port))
        few = psutil.Process(lender.process.pid).num_fds() + 12
        resource.prlimit(lender.process.pid, resource.RLIMIT_NOFILE, (few, few))
        with contextlib.ExitStack() as stack:
            answers = [hello(address, stack) for _ in range(12)]
            assert answers[0] and not all(answers)
            assert lender.process.poll() is None
            processes = lender.processes()
            assert len(processes) < 12
        wait_until(lambda: len(lender.processes()) <= 1)
        with contextlib.ExitStack() as stack:
            assert hello(address, stack), "those that left made room"
        processes += lender.processes()
        lender.kill()
        _, alive = psutil.wait_procs(processes, timeout=20)
        assert not alive
