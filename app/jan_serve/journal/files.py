"""Files that clients upload, and those that batches leave: in the journal, each for its owner."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from jan_serve.journal.journal import Journal
from jan_serve.journal.room import check_share, expire

if TYPE_CHECKING:
    from jan_serve.journal.pages import PageRequest


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
_VISIBLE = "(expires IS NULL OR expires > CAST(strftime('%s', 'now') AS INTEGER))"
"""Expired files are there until something is stored."""


def insert_file(db: sqlite3.Connection, file: StoredFile, content: bytes) -> None:
    """Store a file, within a transaction."""
    row = (*msgspec.structs.astuple(file), content)
    db.execute(f"INSERT INTO files ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


class FileTable:
    """Each method raises as Journal.run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def add(self, file: StoredFile, content: bytes) -> None:
        def work(db: sqlite3.Connection) -> None:
            expire(db)
            check_share(db, file.owner, len(content), self._journal)
            insert_file(db, file, content)

        await self._journal.run(work)

    async def find(self, owner: str, file_id: str) -> StoredFile | None:
        def work(db: sqlite3.Connection) -> StoredFile | None:
            command = f"SELECT {_COLUMNS} FROM files WHERE {_VISIBLE} AND owner = ? AND id = ?"
            row = db.execute(command, (owner, file_id)).fetchone()
            return None if row is None else _file(row)

        return await self._journal.run(work)

    async def page(
        self, owner: str, asked: PageRequest, purpose: str | None = None
    ) -> tuple[list[StoredFile], bool]:
        """Those of a purpose, or of all. See read_page."""
        from jan_serve.journal.pages import read_page  # a server starts without it

        def work(db: sqlite3.Connection) -> tuple[list[StoredFile], bool]:
            conditions = {"owner": owner} | ({} if purpose is None else {"purpose": purpose})
            rows, has_more = read_page(db, ("files", _VISIBLE), _COLUMNS, conditions, asked)
            return [_file(row) for row in rows], has_more

        return await self._journal.run(work)

    async def content(self, owner: str, file_id: str) -> bytes | None:
        def work(db: sqlite3.Connection) -> bytes | None:
            row = db.execute(
                f"SELECT content FROM files WHERE {_VISIBLE} AND owner = ? AND id = ?", (owner, file_id)
            ).fetchone()
            return None if row is None else row[0]

        return await self._journal.run(work)

    async def delete(self, owner: str, file_id: str) -> bool:
        """Delete a file; returns whether it existed."""

        def work(db: sqlite3.Connection) -> bool:
            return db.execute("DELETE FROM files WHERE owner = ? AND id = ?", (owner, file_id)).rowcount > 0

        return await self._journal.run(work)


def _file(row: Sequence[Any]) -> StoredFile:
    return StoredFile(**dict(zip(_COLUMNS.split(", "), row, strict=True)))
