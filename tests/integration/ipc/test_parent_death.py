"""Children whose parent dies before they can ask the kernel to end them with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jan_serve.ipc.child_pipe import PARENT_VARIABLE
from tests.support.deadline import deadline

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the signal")

CHILD = f"""
import os, sys, time
from jan_serve.ipc.child_pipe import end_with_parent
while len(sys.argv) > 1 and os.getppid() == int(os.environ["{PARENT_VARIABLE}"]):
    time.sleep(0.001)
end_with_parent()
print("lives", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import os, subprocess, sys
environment = {{**os.environ, "{PARENT_VARIABLE}": str(os.getpid())}}
subprocess.Popen([sys.executable, "-c", sys.argv[1], "late"], env=environment)
"""


def test_a_child_ends_whose_parent_died_before_it_asked() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process, deadline(process):
        assert process.stdout is not None
        assert process.stdout.read() == b"", "the child's end closes the pipe, and it has said nothing"


@pytest.mark.parametrize("environment", [{PARENT_VARIABLE: str(os.getpid())}, {}])
def test_a_child_of_a_living_parent_goes_on(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **environment},
        input=b"",
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == b"lives\n"
