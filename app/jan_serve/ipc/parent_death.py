"""How a worker makes sure that it does not outlive the front. Called by the worker itself, once, early.

Everywhere the end of the pipe (BlockingChannel.receive() is None) is the signal. It needs a thread that gets
to run, which a native call that keeps the GIL for ever prevents; on Linux the kernel therefore kills us too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def end_with_parent() -> None:
    """Linux: SIGKILL this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).

    Does nothing elsewhere. Raises OSError when the kernel refuses.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # It died before the call, so that no signal will come. The pipe is at its end too.
            os.kill(os.getpid(), signal.SIGKILL)


def write_no_core_dump() -> None:
    """Linux: a crash leaves no copy of the memory, which holds prompts and weights (PR_SET_DUMPABLE).

    Also makes a crash visible to the front at once: the pipe stays open while a dump is written.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    unused = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
