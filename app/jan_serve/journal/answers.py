"""Answers in the journal: what is written of those that are not whole, and background answers, asked for and whole.

A log holds the engine's events, which a later server goes on from. It goes with its answer: the journal deletes it once
that is whole or deleted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core.transcript import Asked, Transcript
from jan_serve.errors import StoreError
from jan_serve.journal.journal import Journal
from jan_serve.journal.tables import Table, check_share, expire, transaction

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


class OpenAnswer(msgspec.Struct, frozen=True):
    """A background answer that is not whole. request: JSON."""

    id: str
    owner: str
    created: int
    request: bytes
    log: Log = Log()


class WholeAnswer(msgspec.Struct, frozen=True):
    """reply: JSON. frames: of its stream, in order."""

    request: bytes
    reply: bytes
    frames: tuple[bytes, ...]

    def behind(self, after: int) -> tuple[bytes, ...]:
        """The frames behind this number, or the last one: see LiveAnswer.follow."""
        return self.frames[after + 1 :] or self.frames[-1:]


class AnswerTable(Table):
    @transaction
    def begin(self, db: sqlite3.Connection, answer: OpenAnswer) -> None:
        expire(db)
        check_share(db, answer.owner, len(answer.request), self.journal)
        db.execute(
            "INSERT INTO answers (id, owner, created, request) VALUES (?, ?, ?, ?)",
            (answer.id, answer.owner, answer.created, answer.request),
        )

    @transaction
    def open_answers(self, db: sqlite3.Connection) -> list[OpenAnswer]:
        """Those of all owners, the oldest first."""
        rows = db.execute(
            "SELECT id, owner, created, request FROM answers WHERE reply IS NULL ORDER BY created, rowid"
        ).fetchall()
        return [OpenAnswer(*row, log=find_log(db, Work(row[1], row[0]))) for row in rows]

    async def end(self, answer_id: str, reply: bytes, frames: Sequence[bytes]) -> None:
        """The whole answer, which replaces its log. Without effect if it has ended or is deleted."""
        packed = await asyncio.to_thread(lambda: zlib.compress(msgspec.msgpack.encode(frames)))
        await self._end(answer_id, reply, packed)

    @transaction
    def _end(self, db: sqlite3.Connection, answer_id: str, reply: bytes, packed: bytes) -> None:
        command = "UPDATE answers SET reply = ?, frames = ? WHERE id = ? AND reply IS NULL"
        db.execute(command, (reply, packed, answer_id))

    async def find(self, owner: str, answer_id: str) -> WholeAnswer | None:
        """None if it is not whole, or another owner's."""
        row = await self._row(owner, answer_id)
        if row is None:
            return None
        request, reply, packed = row
        frames = await asyncio.to_thread(zlib.decompress, packed)
        return WholeAnswer(request, reply, msgspec.msgpack.decode(frames, type=tuple[bytes, ...]))

    @transaction
    def _row(self, db: sqlite3.Connection, owner: str, answer_id: str) -> tuple[bytes, bytes, bytes] | None:
        return db.execute(
            "SELECT request, reply, frames FROM answers WHERE id = ? AND owner = ? AND reply IS NOT NULL",
            (answer_id, owner),
        ).fetchone()

    @transaction
    def delete(self, db: sqlite3.Connection, owner: str, answer_id: str) -> bool:
        """Delete an answer; returns whether it existed."""
        return db.execute("DELETE FROM answers WHERE id = ? AND owner = ?", (answer_id, owner)).rowcount > 0
