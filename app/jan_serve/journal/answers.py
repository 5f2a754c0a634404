"""Background answers in the journal: what was asked, the engine's events so far, then the whole answer."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Sequence

import msgspec

from jan_serve.journal.expiry import expire
from jan_serve.journal.journal import Journal
from jan_serve.journal.shares import check_share


class OpenAnswer(msgspec.Struct, frozen=True):
    """An answer that is not whole. request: JSON. events: see AnswerLog."""

    id: str
    owner: str
    created: int
    request: bytes
    seed: int
    events: tuple[bytes, ...] = ()


class WholeAnswer(msgspec.Struct, frozen=True):
    """reply: JSON. frames: of its stream, in order."""

    request: bytes
    reply: bytes
    frames: tuple[bytes, ...]


class AnswerTable:
    """Each method raises as Journal.run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def begin(self, answer: OpenAnswer) -> None:
        def work(db: sqlite3.Connection) -> None:
            expire(db)
            check_share(db, answer.owner, len(answer.request), self._journal.max_bytes)
            db.execute(
                "INSERT INTO answers (id, owner, created, request, seed) VALUES (?, ?, ?, ?, ?)",
                (answer.id, answer.owner, answer.created, answer.request, answer.seed),
            )

        await self._journal.run(work)

    async def open_answers(self) -> list[OpenAnswer]:
        """Those of all owners, the oldest first."""

        def work(db: sqlite3.Connection) -> list[OpenAnswer]:
            rows = db.execute(
                "SELECT id, owner, created, request, seed FROM answers WHERE reply IS NULL ORDER BY created, rowid"
            ).fetchall()
            return [OpenAnswer(*row, events=_events(db, row[0])) for row in rows]

        return await self._journal.run(work)

    async def add(self, answer_id: str, first: int, events: Sequence[bytes]) -> bool:
        """Add the events from this number on. False if the answer is deleted."""

        def work(db: sqlite3.Connection) -> bool:
            row = db.execute("SELECT owner FROM answers WHERE id = ?", (answer_id,)).fetchone()
            if row is None:
                return False
            check_share(db, row[0], sum(map(len, events)), self._journal.max_bytes)
            db.executemany(
                "INSERT INTO answer_events (answer, number, event) VALUES (?, ?, ?)",
                [(answer_id, number, event) for number, event in enumerate(events, first)],
            )
            return True

        return await self._journal.run(work)

    async def end(self, answer_id: str, reply: bytes, frames: Sequence[bytes]) -> None:
        """The whole answer, which replaces its events. Without effect if it has ended or is deleted."""
        packed = await asyncio.to_thread(lambda: zlib.compress(msgspec.msgpack.encode(frames)))

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE answers SET reply = ?, frames = ? WHERE id = ? AND reply IS NULL",
                (reply, packed, answer_id),
            )
            db.execute("DELETE FROM answer_events WHERE answer = ?", (answer_id,))

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
        """Returns whether it existed."""

        def work(db: sqlite3.Connection) -> bool:
            cursor = db.execute("DELETE FROM answers WHERE id = ? AND owner = ?", (answer_id, owner))
            return cursor.rowcount > 0

        return await self._journal.run(work)


def _events(db: sqlite3.Connection, answer_id: str) -> tuple[bytes, ...]:
    rows = db.execute("SELECT event FROM answer_events WHERE answer = ? ORDER BY number", (answer_id,))
    return tuple(event for (event,) in rows)
