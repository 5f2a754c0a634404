"""Background answers in the journal: what was asked, then the whole answer."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Sequence

import msgspec

from jan_serve.journal.journal import Journal
from jan_serve.journal.logs import Log, Work, find_log
from jan_serve.journal.room import check_share, expire


class OpenAnswer(msgspec.Struct, frozen=True):
    """An answer that is not whole. request: JSON."""

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


class AnswerTable:
    """Each method raises as Journal.run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def begin(self, answer: OpenAnswer) -> None:
        def work(db: sqlite3.Connection) -> None:
            expire(db)
            check_share(db, answer.owner, len(answer.request), self._journal)
            db.execute(
                "INSERT INTO answers (id, owner, created, request) VALUES (?, ?, ?, ?)",
                (answer.id, answer.owner, answer.created, answer.request),
            )

        await self._journal.run(work)

    async def open_answers(self) -> list[OpenAnswer]:
        """Those of all owners, the oldest first."""

        def work(db: sqlite3.Connection) -> list[OpenAnswer]:
            rows = db.execute(
                "SELECT id, owner, created, request FROM answers WHERE reply IS NULL ORDER BY created, rowid"
            ).fetchall()
            return [OpenAnswer(*row, log=find_log(db, Work(row[1], row[0]))) for row in rows]

        return await self._journal.run(work)

    async def end(self, answer_id: str, reply: bytes, frames: Sequence[bytes]) -> None:
        """The whole answer, which replaces its log. Without effect if it has ended or is deleted."""
        packed = await asyncio.to_thread(lambda: zlib.compress(msgspec.msgpack.encode(frames)))

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE answers SET reply = ?, frames = ? WHERE id = ? AND reply IS NULL",
                (reply, packed, answer_id),
            )

        await self._journal.run(work)

    async def find(self, owner: str, answer_id: str) -> WholeAnswer | None:
        """None if it is not whole, or another owner's."""

        def work(db: sqlite3.Connection) -> tuple[bytes, bytes, bytes] | None:
            return db.execute(
                "SELECT request, reply, frames FROM answers WHERE id = ? AND owner = ? AND reply IS NOT NULL",
                (answer_id, owner),
            ).fetchone()

        row = await self._journal.run(work)
        if row is None:
            return None
        packed = await asyncio.to_thread(zlib.decompress, row[2])
        frames = msgspec.msgpack.decode(packed, type=tuple[bytes, ...])
        return WholeAnswer(row[0], row[1], frames)

    async def delete(self, owner: str, answer_id: str) -> bool:
        """Delete an answer; returns whether it existed."""

        def work(db: sqlite3.Connection) -> bool:
            cursor = db.execute("DELETE FROM answers WHERE id = ? AND owner = ?", (answer_id, owner))
            return cursor.rowcount > 0

        return await self._journal.run(work)
