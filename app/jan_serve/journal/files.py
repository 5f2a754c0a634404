"""Files that clients upload, and those that batches leave: in the journal, each for its owner."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from jan_serve.journal.tables import PageRequest, Table, check_share, expire, read_page, transaction


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


_COLUMNS = ", ".join(StoredFile.__struct_fields__)
_VISIBLE = "(expires IS NULL OR expires > CAST(strftime('%s', 'now') AS INTEGER))"
"""Expired files are there until something is stored."""
_OWN = f"FROM files WHERE {_VISIBLE} AND owner = ? AND id = ?"


def insert_file(db: sqlite3.Connection, file: StoredFile, content: bytes) -> None:
    """Store a file, within a transaction."""
    row = (*msgspec.structs.astuple(file), content)
    db.execute(f"INSERT INTO files ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


class FileTable(Table):
    @transaction
    def add(self, db: sqlite3.Connection, file: StoredFile, content: bytes) -> None:
        expire(db)
        check_share(db, file.owner, len(content), self.journal)
        insert_file(db, file, content)

    @transaction
    def find(self, db: sqlite3.Connection, owner: str, file_id: str) -> StoredFile | None:
        row = db.execute(f"SELECT {_COLUMNS} {_OWN}", (owner, file_id)).fetchone()
        return None if row is None else _file(row)

    @transaction
    def page(
        self, db: sqlite3.Connection, owner: str, asked: PageRequest, purpose: str | None = None
    ) -> tuple[list[StoredFile], bool]:
        """Those of a purpose, or of all. See read_page."""
        conditions = {"owner": owner} | ({} if purpose is None else {"purpose": purpose})
        rows, has_more = read_page(db, ("files", _VISIBLE), _COLUMNS, conditions, asked)
        return [_file(row) for row in rows], has_more

    @transaction
    def content(self, db: sqlite3.Connection, owner: str, file_id: str) -> bytes | None:
        row = db.execute(f"SELECT content {_OWN}", (owner, file_id)).fetchone()
        return None if row is None else row[0]

    @transaction
    def delete(self, db: sqlite3.Connection, owner: str, file_id: str) -> bool:
        """Delete a file; returns whether it existed."""
        return db.execute("DELETE FROM files WHERE owner = ? AND id = ?", (owner, file_id)).rowcount > 0


def _file(row: Sequence[Any]) -> StoredFile:
    return StoredFile(**dict(zip(StoredFile.__struct_fields__, row, strict=True)))
