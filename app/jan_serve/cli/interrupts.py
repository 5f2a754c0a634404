"""Ctrl-C while the interpreter imports or ends, where an exception would be shown as a traceback, or lost."""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from types import FrameType

INTERRUPTED = 130
"""The exit status."""


@contextlib.contextmanager
def interrupts_end_at_once() -> Generator[None]:
    """In the block Ctrl-C ends the process without a word; nothing may need to be put in order there.

    Where SIGINT is ignored, as in what a shell starts in the background, or handled, that stays.
    """
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
    """As in that block, from now on: the command is over."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
