"""The pipe of a process of ours: its standard input and output."""

from __future__ import annotations

import contextlib
import os
import sys


def take_over_pipe() -> tuple[int, int]:
    """Make stdin and stdout the private pipe of this process; returns its read and write ends. Call it first.

    Afterwards descriptor 1 is stderr, because native code prints to stdout, and 0 is the null device. Child processes
    do not inherit the pipe (PEP 446), so it closes with this process.
    """
    read_fd = os.dup(0)
    write_fd = os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(read_fd, os.O_BINARY)
        msvcrt.setmode(write_fd, os.O_BINARY)
    else:
        _keep_from_children()
    sys.stdout = sys.stderr
    return read_fd, write_fd


def _keep_from_children() -> None:
    """Some event loops (uvloop) pass down copies of the pipe beside 0 and 1, which a child would hold open."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.set_inheritable(int(name), False)
