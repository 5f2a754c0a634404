"""A file of SQLite, the journal or the chats: one connection in one thread, each piece of work in a transaction.

The lock is exclusive, so that two servers of one data folder do not do the same work twice. It ends with the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from jan_serve.errors import InsufficientStorage, JournalUnusable, StoreError, UnsupportedOperation, shortage
from jan_serve.journal.schema import WORK, Content

logger = logging.getLogger(__name__)

T = TypeVar("T")

FILE_NAME: Final = "journal.sqlite3"
_KEPT_DAMAGED: Final = 3
_SIDE_FILES: Final = ("", "-wal", "-shm")
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TAKEN: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Journal:
    """Opened by the first piece of work. Methods are for the event loop."""

    def __init__(self, path: Path, max_bytes: int, content: Content = WORK) -> None:
        """max_bytes: of the file; 0 keeps none, and all work is refused."""
        self.path = path
        self.max_bytes: Final = max_bytes
        self.content: Final = content
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    @property
    def exists(self) -> bool:
        """Whether there may be anything from an earlier server."""
        return self.max_bytes > 0 and self.path.exists()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`, which one transaction holds whole. Cancelling the call does not stop it.

        Raises InsufficientStorage if the journal or the disk is full, JournalUnusable if it is another server's,
        StoreError if the file cannot be used, and UnsupportedOperation without a journal.
        """
        if not self.max_bytes:
            raise UnsupportedOperation(
                f"This server keeps no {self.content.name}: `{self.content.setting}` is 0."
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, self.content.name)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)
        except RuntimeError as error:
            self._thread = None  # it has no thread, and keeps the work for a later one
            raise _cannot_now(error) from error
        try:
            # To cancel the future would drop work that has not begun: the thread may be busy with other work.
            await asyncio.wait((done,))
        except asyncio.CancelledError:
            done.add_done_callback(_log_unseen_failure)
            raise
        return done.result()

    async def close(self) -> None:
        """Waits for the work that was begun. The journal opens again with the next piece."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._open()
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._failure(error) from error
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError) and shortage(error) is None:
                raise StoreError(
                    f"The {self.content.name} {self.path} cannot be opened: {error.strerror}."
                ) from error
            raise _cannot_now(error) from error

    def _open(self) -> sqlite3.Connection:
        """The connection, with the present schema. A damaged file is moved aside, and a new one takes its place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGED:
                raise
            self._move_aside()
            return self._connected()

    def _connected(self) -> sqlite3.Connection:
        # SQLite gives its other files the mode of this one.
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            (fault,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if fault != "ok":
                raise _damaged(fault)
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA max_page_count = {max(1, self.max_bytes // page_size)}")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Raises JournalUnusable for the file of a newer version."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        migrations = self.content.migrations
        if version > len(migrations):
            raise JournalUnusable(
                f"The {self.content.name} of this server was written by a newer version of jan-serve (its format is"
                f" {version}, and this version reads {len(migrations)} at most). Start that version, or move the file"
                " away."
            )
        for number, script in enumerate(migrations[version:], version + 1):
            connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT")

    def _failure(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        name = self.content.name
        match code:
            case sqlite3.SQLITE_FULL:
                return InsufficientStorage(
                    f"The {name} is full: the disk has no room, or the file has reached `{self.content.setting}`"
                    f" ({self.max_bytes}). {self.content.deletable}"
                )
            case _ if code in _DAMAGED:
                self._disconnect()
                aside = self._move_aside()
                return StoreError(f"The {name} was damaged, and is {aside.name} now. {self.content.lost}")
            case _ if code in _TAKEN:
                self._disconnect()
                return JournalUnusable(f"Another server uses the {name} of this data folder.")
            case _:
                self._disconnect()
                return StoreError(f"The {name} {self.path} cannot be used: {error}.")

    def _move_aside(self) -> Path:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
        for end in _SIDE_FILES:
            file = self.path.with_name(self.path.name + end)
            if file.exists():
                file.replace(aside.with_name(aside.name + end))
            for old in sorted(self.path.parent.glob(f"{self.path.name}.damaged-{'?' * 15}{end}"))[
                :-_KEPT_DAMAGED
            ]:
                old.unlink(missing_ok=True)
        logger.error(
            "the %s %s is damaged: moved to %s, and a new one begins. %s",
            self.content.name,
            self.path,
            aside.name,
            self.content.lost,
        )
        return aside

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _cannot_now(error: Exception) -> Exception:
    """The error for a lack of memory, threads or descriptors; else the error itself."""
    lacking = shortage(error)
    return error if lacking is None else JournalUnusable(lacking.message)


def _log_unseen_failure(done: asyncio.Future[Any]) -> None:
    """Log the failure of work whose caller did not wait for it."""
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.warning("what was to be kept is lost: %s", error)


def _damaged(fault: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(fault)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
