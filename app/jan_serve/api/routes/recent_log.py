"""The last records of this process's log, kept in memory."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from jan_serve.logs.log_lines import record_content

KEPT: Final = 2000
_MAX_CHARS: Final = 20_000
"""Characters kept of one message or traceback: those of templates and libraries have no other limit."""


def _plain(value: object) -> object:
    """A JSON value of bounded length."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"


class LogEntry(msgspec.Struct, frozen=True):
    """number: counts from 1 since the start, without gaps. level: the logging module's number."""

    number: int
    level: int
    content: dict[str, Any]


class RecentLog(logging.Handler):
    """A handler that keeps the last `kept` records. Listeners are called in the thread that logs."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._entries: deque[LogEntry] = deque(maxlen=kept)
        self._last = 0
        self._listeners: list[Callable[[], object]] = []
        self._mutex = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            content = {name: _plain(value) for name, value in record_content(record).items()}
        except (
            Exception
        ):  # as in every handler: a record that cannot be formatted must not break the code that logs it
            self.handleError(record)
            return
        with self._mutex:
            self._last += 1
            self._entries.append(LogEntry(self._last, record.levelno, content))
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def entries(self, *, after: int = 0, level: int = logging.NOTSET) -> list[LogEntry]:
        """Kept records, oldest first, with a number above `after` and at least this level."""
        with self._mutex:
            return [entry for entry in self._entries if entry.number > after and entry.level >= level]

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Generator[None]:
        """Call `listener` after every record while the block runs."""
        with self._mutex:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._mutex:
                self._listeners.remove(listener)


@contextmanager
def recent_log() -> Generator[RecentLog]:
    """A handler on the root logger while the block runs."""
    handler = RecentLog()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        handler.close()
