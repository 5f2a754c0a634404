"""A child process of ours first takes over its pipe (stdin and stdout), and ensures that it ends with the front.

The end of the pipe (BlockingChannel.receive() is None) is the signal on every platform. A native call that never
releases the GIL would block the thread that reads it; on Linux the kernel therefore kills the process as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "JAN_SERVE_PARENT"
"""Variable of the environment with the pid of the process that started this one."""

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def end_with_parent() -> None:
    """Linux: SIGKILL this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).

    Does nothing elsewhere. Raises OSError.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if str(os.getppid()) != os.environ.get(PARENT_VARIABLE, str(os.getppid())):
            # The parent died before the call, so no signal will come.
            os.kill(os.getpid(), signal.SIGKILL)


def write_no_core_dump() -> None:
    """Linux: a crash writes no dump of the memory, which has prompts and weights (PR_SET_DUMPABLE).

    The front then notices a crash at once: while a dump is written, the pipe stays open.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    unused = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


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
