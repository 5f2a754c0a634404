"""The rotating log file, written by one server at a time.
`server.log` is the current file, `server.log.1` the previous one, and so on."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

import filelock

from jan_serve.store.files import private_folder

_LOCK_SUFFIX: Final = ".lock"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class LogFileUnavailable(Exception):
    """The log file cannot be written. The server continues without it."""


class LogFileHandler(logging.handlers.RotatingFileHandler):
    """Keeps `n_files` files of about `max_bytes` each; lines are never split.
    A full disk loses lines but does not stop the server: standard error gets one warning."""

    def __init__(self, path: Path, max_bytes: int, n_files: int) -> None:
        """n_files: at least 2, including the current file. Raises OSError."""
        super().__init__(
            path, maxBytes=max_bytes, backupCount=n_files - 1, encoding="utf-8", errors="replace"
        )
        self._failed = False

    def _open(self) -> io.TextIOWrapper:
        """Open it for its owner alone: names of models and times of requests are nobody else's business."""
        descriptor = os.open(self.baseFilename, _APPEND, 0o600)
        return io.TextIOWrapper(open(descriptor, "ab"), encoding=self.encoding, errors=self.errors)

    def doRollover(self) -> None:
        """Rename the files. If that fails (on Windows, while the file is open elsewhere), truncate the current one."""
        try:
            super().doRollover()
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self.baseFilename, 0)
            if self.stream is None or self.stream.closed:  # closed: where its last lines could not be written
                self.stream = None
                self.stream = self._open()

    def close(self) -> None:
        """Close the file; lines that the disk cannot take are lost. The descriptor is closed even then."""
        try:
            super().close()
        except OSError as error:
            self._report(error)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a disk error once. Any other error is a bug and prints its traceback."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
        else:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            if sys.stderr is not None:
                sys.stderr.write(
                    f"warning: cannot write to the log file {self.baseFilename}: {error.strerror}\n"
                )


@contextlib.contextmanager
def open_log_file(path: Path, max_bytes: int, n_files: int) -> Generator[LogFileHandler]:
    """A handler with an exclusive lock on the file. Creates missing folders.
    Raises LogFileUnavailable if another server writes the file, or it cannot be written."""
    lock = filelock.FileLock(path.with_name(path.name + _LOCK_SUFFIX), thread_local=False, mode=0o600)
    try:
        private_folder(path.parent)
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise LogFileUnavailable(f"another server writes to {path}") from None
    except OSError as error:
        raise LogFileUnavailable(f"cannot write to {path}: {error.strerror}") from None
    try:
        try:
            handler = LogFileHandler(path, max_bytes, n_files)
        except OSError as error:
            raise LogFileUnavailable(f"cannot write to {path}: {error.strerror}") from None
        with contextlib.closing(handler):
            yield handler
    finally:
        lock.release()
