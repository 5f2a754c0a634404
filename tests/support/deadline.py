"""A time limit for reading from a child process and for waiting for its end."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Generator
from typing import Any


@contextlib.contextmanager
def deadline(process: subprocess.Popen[Any], limit_s: float = 60.0) -> Generator[None]:
    """Kills the process if the block takes longer, which ends reads from it; the block then fails.

    Not for blocks that raise by themselves once the process is gone: their error is the one that is seen.
    """
    passed = threading.Event()

    def end() -> None:
        passed.set()
        process.kill()

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    assert not passed.is_set(), f"the process did not do its part within {limit_s} s"
