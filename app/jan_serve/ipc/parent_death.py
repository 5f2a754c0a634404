"""Ensures that a child process does not outlive the front. The child calls it once, early.

The end of the pipe (BlockingChannel.receive() is None) is the signal on every platform. A native call that never
releases the GIL would block the thread that reads it; on Linux the kernel therefore kills the process as well.
"""

from __future__ import annotations

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
