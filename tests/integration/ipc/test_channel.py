"""Both ends of the pipe, over real pipes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.ipc.messages import Detokenized, PingRequest

pytestmark = pytest.mark.anyio
TAKE_OVER = """
import os, subprocess, sys
copy = os.dup2(1, 9)
from jan_serve.ipc.channel import take_over_stdio
from jan_serve.ipc.messages import Detokenized
channel = take_over_stdio()
print("from print", flush=True)
os.write(1, b"from native code\\n")
subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
assert not os.get_inheritable(copy), "a copy of the pipe reaches children"
assert os.read(0, 1) == b"", "stdin is still the pipe"
request = channel.receive()
channel.send(Detokenized(1, repr(request)))
assert channel.receive() is None
"""


def test_taking_over_stdio_keeps_prints_out_of_the_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKE_OVER],
        input=REQUESTS.encode(PingRequest(42)),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == EVENTS.encode(Detokenized(1, repr(PingRequest(42))))
    assert done.stderr.decode().split("\n") == ["from print", "from native code", "from a child", ""]
