"""Files that clients upload, and those that batches leave: in the journal, each for its owner."""

from __future__ import annotations

import sqlite3
import uuid

import msgspec

from jan_serve.journal.journal import Journal


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """size: bytes of its content. expires: when it is deleted; None for never."""

    id: str
    owner: str
    created: int
    expires: int | None = None
    purpose: str
    name: str
    size: int


def new_file(owner: str, created: int, purpose: str, name: str, size: int, expires: int | None) -> StoredFile:
    return StoredFile(
        id=f"file-{uuid.uuid4().hex}",
        owner=owner,
        created=created,
        expires=expires,
        purpose=purpose,
        name=name,
        size=size,
    )


_COLUMNS = "id, owner, created, expires, purpose, name, size"


def insert_file(db: sqlite3.Connection, file: StoredFile, content: bytes) -> None:
    """Within a transaction."""
    row = (*msgspec.structs.astuple(file), content)
    db.execute(f"INSERT INTO files ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


class FileTable:
    """Each method raises as Journal.run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def add(self, file: StoredFile, content: bytes) -> None:
        await self._journal.run(lambda db: insert_file(db, file, content))

    async def find(self, owner: str, file_id: str) -> StoredFile | None:
        return next(iter(await self._select("owner = ? AND id = ?", owner, file_id)), None)

    async def all(self, owner: str) -> list[StoredFile]:
        """The latest first."""
        return await self._select("owner = ? ORDER BY created DESC, rowid DESC", owner)

    async def content(self, owner: str, file_id: str) -> bytes | None:
        def work(db: sqlite3.Connection) -> bytes | None:
            row = db.execute(
                "SELECT content FROM files WHERE owner = ? AND id = ?", (owner, file_id)
            ).fetchone()
            return None if row is None else row[0]

        return await self._journal.run(work)

    async def delete(self, owner: str, file_id: str) -> bool:
        """Returns whether it existed."""

        def work(db: sqlite3.Connection) -> bool:
            return db.execute("DELETE FROM files WHERE owner = ? AND id = ?", (owner, file_id)).rowcount > 0

        return await self._journal.run(work)

    async def _select(self, condition: str, *values: str) -> list[StoredFile]:
        def work(db: sqlite3.Connection) -> list[StoredFile]:
            rows = db.execute(f"SELECT {_COLUMNS} FROM files WHERE {condition}", values)
            return [StoredFile(**dict(zip(_COLUMNS.split(", "), row, strict=True))) for row in rows]

        return await self._journal.run(work)


def expire(db: sqlite3.Connection, now: int) -> None:
    """Within a transaction."""
    db.execute("DELETE FROM files WHERE expires < ?", (now,))
