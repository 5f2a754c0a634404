"""Background answers in the journal: what was asked, then the whole answer."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Sequence

import msgspec

from jan_serve.journal.logs import Log, Work, find_log
from jan_serve.journal.tables import Table, check_share, expire, transaction


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
