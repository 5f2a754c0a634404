"""Ends a server that another program started, when that program ends."""

from __future__ import annotations

import os
import signal
import sys
import threading


def stop_at_end_of_input() -> None:
    """Let the end of standard input stop this process as SIGTERM does. Returns at once."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    sys.stdin.buffer.read()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)  # a signal to the process wakes the main thread
    else:
        signal.raise_signal(signal.SIGTERM)
