"""The last lines of this process's log, in memory, for whoever asks the server for them. Writes nothing anywhere."""

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
"""Of one message or traceback: what a model's template or a library says is bounded nowhere else."""


def _plain(value: object) -> object:
    """A value that JSON has, of bounded length."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"


class LogEntry(msgspec.Struct, frozen=True):
    """One line. number: counted from 1 since the start, without gaps. level: as the logging module's numbers."""

    number: int
    level: int
    content: dict[str, Any]


class RecentLog(logging.Handler):
    """A handler that keeps the last `kept` records. Any thread may log; listeners are called in that thread."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._entries: deque[LogEntry] = deque(maxlen=kept)
        self._last = 0
        self._listeners: list[Callable[[], object]] = []
        self._mutex = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Part of logging.Handler."""
        try:
            content = {name: _plain(value) for name, value in record_content(record).items()}
        except Exception:  # as every handler: a line that cannot be written must not break what it tells of
            self.handleError(record)
            return
        with self._mutex:
            self._last += 1
            self._entries.append(LogEntry(self._last, record.levelno, content))
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def entries(self, *, after: int = 0, level: int = logging.NOTSET) -> list[LogEntry]:
        """What is kept, oldest first, with a greater number than `after` and at least this level."""
        with self._mutex:
            return [entry for entry in self._entries if entry.number > after and entry.level >= level]

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Generator[None]:
        """Have `listener` called after every record while the block runs."""
        with self._mutex:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._mutex:
                self._listeners.remove(listener)


@contextmanager
def recent_log() -> Generator[RecentLog]:
    """One that hears what the log's other handlers hear, while the block runs."""
    handler = RecentLog()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        handler.close()
