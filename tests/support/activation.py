"""Starts a command with a listening socket as descriptor 3, as systemd's socket activation does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_START = """
import os, sys
descriptor, pid, count, *command = sys.argv[1:]
os.dup2(int(descriptor), 3)
os.environ.update(LISTEN_PID=pid or str(os.getpid()), LISTEN_FDS=count)
os.execv(command[0], command)
"""


def activated(descriptor: int, command: Sequence[str], *, pid: str = "", count: str = "1") -> list[str]:
    """The command line to run with this descriptor passed. pid: the socket's process; "" is the command itself."""
    return [sys.executable, "-c", _START, str(descriptor), pid, count, *command]
