"""Ctrl-C while the process starts or ends, where KeyboardInterrupt would print a traceback or be ignored.
Python ignores exceptions in weak reference callbacks and `__del__`, and imports run such callbacks."""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from types import FrameType

INTERRUPTED = 130
"""Exit status of a program that an interrupt has ended."""


@contextlib.contextmanager
def interrupts_end_at_once() -> Generator[None]:
    """A block in which Ctrl-C ends the process at once, without cleanup.
    A SIGINT that is ignored, as in background jobs of a shell, or has another handler is left alone."""
    is_ours = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )
    if is_ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def end_by_interrupts() -> None:
    """Let Ctrl-C end the process at once from here on."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
