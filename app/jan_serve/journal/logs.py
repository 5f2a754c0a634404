"""What is written of answers that are not whole: their engine's events, which a later server goes on from.

A log goes with its answer: the journal deletes it once that is whole or deleted.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

import msgspec

from jan_serve.core.transcript import Asked, Transcript
from jan_serve.errors import StoreError
from jan_serve.journal.journal import Journal
from jan_serve.journal.tables import check_share

logger = logging.getLogger(__name__)


class Work(msgspec.Struct, frozen=True):
    """What a log belongs to: an answer, or a line of a batch."""

    owner: str
    id: str
    line: int | None = None

    def __str__(self) -> str:
        return self.id if self.line is None else f"line {self.line} of {self.id}"


class Log(msgspec.Struct, frozen=True):
    """Events of an answer, by the model of these weights. See Transcript, which raises InvalidState for bad ones."""

    weights: str = ""
    events: bytes = b""

    def transcript(self, identity: str, started_s: int) -> Transcript:
        return Transcript(Asked(identity, started_s, self.weights, len(self.events)), self.events)


_IS_OPEN: Final = (
    "SELECT 1 FROM answers WHERE id = ? AND reply IS NULL",
    "SELECT 1 FROM lines WHERE batch = ? AND number = ? AND status IS NULL",
)


def find_log(db: sqlite3.Connection, work: Work) -> Log:
    """The log of a work, within a transaction."""
    command = "SELECT weights, events FROM logs WHERE work = ? AND line = ? ORDER BY number"
    rows = db.execute(command, (work.id, work.line or 0)).fetchall()
    return Log(rows[0][0] if rows else "", b"".join(events for _, events in rows))


async def add_log(journal: Journal, work: Work, log: Log) -> None:
    """Add to what is written. Without effect on an answer that is whole or deleted. Raises as Journal.run."""

    def add(db: sqlite3.Connection) -> None:
        key = (work.id,) if work.line is None else (work.id, work.line)
        if db.execute(_IS_OPEN[len(key) - 1], key).fetchone() is None:
            return
        check_share(db, work.owner, len(log.events), journal)
        count = "(SELECT count(*) FROM logs WHERE work = ?1 AND line = ?2)"
        row = (work.id, work.line or 0, work.owner, log.weights, log.events)
        db.execute(f"INSERT INTO logs VALUES (?1, ?2, {count}, ?3, ?4, ?5)", row)

    await journal.run(add)


async def forget_log(journal: Journal, work: Work) -> None:
    """Raises as Journal.run."""
    command = "DELETE FROM logs WHERE work = ? AND line = ?"
    await journal.run(lambda db: db.execute(command, (work.id, work.line or 0)))


class LogWriter:
    """Puts what a transcript has into the journal, as far as the journal takes it."""

    def __init__(self, journal: Journal, work: Work, transcript: Transcript) -> None:
        self._journal = journal
        self._work = work
        self._transcript = transcript
        self._is_kept = True
        """Behind events that are missing there, none would fit."""

    async def store(self) -> None:
        """The events since the last call. See add_log."""
        transcript, work = self._transcript, self._work
        events = transcript.take()
        if not events or not self._is_kept:
            return
        self._is_kept = transcript.is_single
        try:
            if self._is_kept:
                await add_log(self._journal, work, Log(transcript.weights, events))
            else:
                await forget_log(self._journal, work)
        except StoreError as error:
            self._is_kept = False
            logger.warning("%s goes on, and after a restart from an earlier place: %s", work, error.message)
