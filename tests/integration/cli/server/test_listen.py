"""Opening the port: only one start succeeds, and the error names the holder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jan_serve.cli.server.listen import find_holder
from tests.support.deadline import deadline

HOST = "127.0.0.1"


LISTEN = (
    "import os, socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); {fork};"
    "print(s.getsockname()[1], flush=True); sys.stdin.read()"
)
FORKS = {
    "alone": "pass",
    # A child has the socket, too, until it executes its own program.
    "with a forked child": "os.fork() or (sys.stdin.read(), os._exit(0))",
}


@pytest.mark.parametrize("forks", FORKS if hasattr(os, "fork") else ["alone"])
def test_a_listener_that_does_not_answer_is_found_by_its_process(forks: str) -> None:
    """A jan-serve that has the port and is still starting answers no HTTP yet."""
    code = LISTEN.format(fork=FORKS[forks])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with deadline(process):
            port = int(process.stdout.readline())
        with pytest.MonkeyPatch.context() as patch:

            def is_the_code_above(command: list[str]) -> bool:
                return code in command

            patch.setattr("jan_serve.cli.server.listen.is_our_command", is_the_code_above)
            holder = find_holder(HOST, port)
        process.communicate("", timeout=60)
    assert (holder.is_jan_serve, holder.pid) == (True, process.pid)
    assert holder.description == f"jan-serve (pid {process.pid})"
