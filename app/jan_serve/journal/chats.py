"""Chats in a file of SQLite of their own, each for its owner, with an index of their words.

A chat's number tells when it was last written, so that lists and searches go by the numbers of one index. Whoever
writes a chat names the version that they know: what another page wrote meanwhile is not lost.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from jan_serve.journal.chat_words import excerpt, found_by, searchable
from jan_serve.journal.tables import Table, check_share, transaction

RESTORABLE_MS: Final = 86_400_000
"""How long a deleted chat can be restored."""
_NUMBERS_PER_MS: Final = 1_024
_EXCERPT_FROM: Final = 1 << 17
"""Characters at the beginning of a chat in which its excerpt is sought."""


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without what was said. Times in milliseconds of the Unix epoch. messages: how many are shown."""

    id: str
    title: str
    folder: str = ""
    pinned: bool = False
    created: int
    updated: int
    version: int
    messages: int


class ChatToStore(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to store. content: JSON. text: of its messages, to be searched. awaits: ids of the responses it waits for.

    created, updated: at most the present time; None is the present time.
    """

    id: str
    title: str
    folder: str = ""
    pinned: bool = False
    created: int | None = None
    updated: int | None = None
    messages: int
    content: bytes
    text: str
    awaits: tuple[str, ...] = ()


class StoredChat(msgspec.Struct, frozen=True):
    """content: JSON. awaits: see ChatToStore."""

    head: ChatSummary
    content: bytes
    awaits: tuple[str, ...]


class Conflict(msgspec.Struct, frozen=True):
    """Why a chat is not written. version: the present one; None if the chat is deleted."""

    version: int | None


class ListedChat(msgspec.Struct, frozen=True):
    """excerpt: where the words are that were sought, or empty. number: its place, behind which a list goes on."""

    head: ChatSummary
    excerpt: str
    number: int


class ChatQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The latest chats, those behind the number `before`. words: how words of each chat begin, or nothing."""

    limit: int
    before: int | None = None
    words: str = ""
    folder: str | None = None
    pinned: bool | None = None


_COLUMNS: Final = ", ".join(ChatSummary.__struct_fields__)
_SELECTED: Final = ", ".join(f"chats.{name}" for name in ChatSummary.__struct_fields__)
"""The index of words has a title, too."""
_LIVE: Final = "chats.owner = ? AND deleted IS NULL"


class ChatTable(Table):
    @property
    def is_kept(self) -> bool:
        return self.journal.max_bytes > 0

    @transaction
    def store_id(self, db: sqlite3.Connection, owner: str) -> str:
        """An id of the owner and the file. Another file, as after a damage, has another second part."""
        return f"{_token(owner)[:16]}.{db.execute('SELECT id FROM store').fetchone()[0]}"

    async def put(self, owner: str, chat: ChatToStore, version: int) -> ChatSummary | Conflict:
        """Write what was said over this version; 0 is for a new chat. An existing one keeps its title and folder."""
        packed = await asyncio.to_thread(zlib.compress, chat.content)
        return await self._put(owner, chat, packed, version)

    @transaction
    def _put(
        self, db: sqlite3.Connection, owner: str, chat: ChatToStore, packed: bytes, version: int
    ) -> ChatSummary | Conflict:
        _purge(db)
        row = db.execute(
            f"SELECT {_COLUMNS}, deleted FROM chats WHERE owner = ? AND id = ?", (owner, chat.id)
        ).fetchone()
        if row is None:
            return Conflict(None) if version else self._insert(db, owner, chat, packed, 1)
        known = _head(row)
        if row[-1] is not None or version != known.version:
            return Conflict(None if row[-1] is not None else known.version)
        _drop(db, owner, chat.id)
        names = {name: getattr(known, name) for name in ("title", "folder", "pinned", "created")}
        return self._insert(db, owner, msgspec.structs.replace(chat, **names), packed, version + 1)

    async def add(self, owner: str, chats: Sequence[ChatToStore]) -> int:
        """Add chats that are not there, and return how many these are. A deleted one counts as not there."""
        packed = await asyncio.to_thread(lambda: [zlib.compress(chat.content) for chat in chats])
        return await self._add(owner, chats, packed)

    @transaction
    def _add(
        self, db: sqlite3.Connection, owner: str, chats: Sequence[ChatToStore], packed: Sequence[bytes]
    ) -> int:
        _purge(db)
        added = 0
        for chat, content in zip(chats, packed, strict=True):
            if _found(db, owner, chat.id) is None:
                _drop(db, owner, chat.id)
                self._insert(db, owner, chat, content, 1)
                added += 1
        return added

    def _insert(
        self, db: sqlite3.Connection, owner: str, chat: ChatToStore, packed: bytes, version: int
    ) -> ChatSummary:
        """packed: the content."""
        check_share(db, owner, len(packed) + len(chat.text), self.journal)
        now = _now()
        updated = min(now, now if chat.updated is None else chat.updated)
        head = ChatSummary(
            id=chat.id,
            title=chat.title,
            folder=chat.folder,
            pinned=chat.pinned,
            created=min(updated, updated if chat.created is None else chat.created),
            updated=updated,
            version=version,
            messages=chat.messages,
        )
        number = _free_number(db, updated)
        db.execute(
            f"INSERT INTO chats (number, owner, content, awaits, {_COLUMNS})"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, owner, packed, " ".join(chat.awaits), *msgspec.structs.astuple(head)),
        )
        db.execute(
            "INSERT INTO words (rowid, owner, title, text) VALUES (?, ?, ?, ?)",
            (number, _token(owner), searchable(chat.title), searchable(chat.text)),
        )
        return head

    @transaction
    def page(self, db: sqlite3.Connection, owner: str, asked: ChatQuery) -> tuple[list[ListedChat], bool]:
        """The chats, and whether there are more."""
        _purge(db)
        where, values = [_LIVE], list[Any]([owner])
        found, text, by = "", "''", "number"
        if asked.words.strip():
            match = found_by(asked.words, _token(owner))
            if match is None:
                return [], False
            # The words first: their index goes by the numbers, too.
            found, by = "words CROSS JOIN", "words.rowid"
            text = f"substr(words.text, 1, {_EXCERPT_FROM})"
            where += ["words MATCH ?", "number = words.rowid"]
            values.append(match)
        if asked.folder is not None:
            where.append("folder = ?")
            values.append(asked.folder)
        if asked.pinned is not None:
            where.append("pinned" if asked.pinned else "NOT pinned")
        if asked.before is not None:
            where.append(f"{by} < ?")
            values.append(asked.before)
        rows = db.execute(
            f"SELECT {_SELECTED}, {text}, number FROM {found} chats WHERE {' AND '.join(where)}"
            f" ORDER BY {by} DESC LIMIT ?",
            (*values, asked.limit + 1),
        ).fetchall()
        shown = rows[: asked.limit]
        listed = [ListedChat(_head(row), excerpt(row[-2], asked.words), row[-1]) for row in shown]
        return listed, len(rows) > asked.limit

    @transaction
    def find(self, db: sqlite3.Connection, owner: str, chat_id: str) -> StoredChat | None:
        """The chat; None if it is not there."""
        command = f"SELECT {_COLUMNS}, awaits, content FROM chats WHERE {_LIVE} AND id = ?"
        row = db.execute(command, (owner, chat_id)).fetchone()
        if row is None:
            return None
        return StoredChat(_head(row), zlib.decompress(row[-1]), tuple(row[-2].split()))

    @transaction
    def awaits(self, db: sqlite3.Connection, owner: str, chat_id: str) -> tuple[str, ...]:
        """Ids of the responses that a chat waits for. Empty if the chat is not there."""
        command = f"SELECT awaits FROM chats WHERE {_LIVE} AND id = ?"
        row = db.execute(command, (owner, chat_id)).fetchone()
        return () if row is None else tuple(row[0].split())

    @transaction
    def waiting(self, db: sqlite3.Connection, owner: str) -> list[str]:
        """The ids of the chats that wait for a response."""
        rows = db.execute(f"SELECT id FROM chats WHERE {_LIVE} AND awaits != ''", (owner,))
        return [chat_id for (chat_id,) in rows]

    @transaction
    def change(
        self, db: sqlite3.Connection, owner: str, chat_id: str, names: dict[str, Any]
    ) -> ChatSummary | None:
        """Change title, folder or pinned, which is no new version: the last one to change them wins."""
        own = f"WHERE {_LIVE} AND id = ?"
        if names:
            changes = ", ".join(f"{name} = ?" for name in names)
            db.execute(f"UPDATE chats SET {changes} {own}", (*names.values(), owner, chat_id))
        if "title" in names:
            db.execute(
                f"UPDATE words SET title = ? WHERE rowid = (SELECT number FROM chats {own})",
                (searchable(names["title"]), owner, chat_id),
            )
        return _found(db, owner, chat_id)

    @transaction
    def delete(self, db: sqlite3.Connection, owner: str, chat_id: str) -> bool:
        """Returns whether it was there. It can be restored for RESTORABLE_MS."""
        _purge(db)
        command = f"UPDATE chats SET deleted = ? WHERE {_LIVE} AND id = ?"
        return db.execute(command, (_now(), owner, chat_id)).rowcount > 0

    @transaction
    def restore(self, db: sqlite3.Connection, owner: str, chat_id: str) -> ChatSummary | None:
        """None if there is nothing to restore. One that is not deleted is unchanged."""
        _purge(db)
        db.execute("UPDATE chats SET deleted = NULL WHERE owner = ? AND id = ?", (owner, chat_id))
        return _found(db, owner, chat_id)

    @transaction
    def folders(self, db: sqlite3.Connection, owner: str) -> list[tuple[str, int]]:
        """The folders by name, each with the number of its chats."""
        command = f"SELECT folder, count(*) FROM chats WHERE {_LIVE} AND folder != '' GROUP BY folder"
        return db.execute(command, (owner,)).fetchall()

    @transaction
    def rename_folder(self, db: sqlite3.Connection, owner: str, folder: str, name: str) -> int:
        """Returns the number of chats that it has. An empty name leaves them in no folder."""
        command = f"UPDATE chats SET folder = ? WHERE {_LIVE} AND folder = ?"
        return db.execute(command, (name, owner, folder)).rowcount


def _found(db: sqlite3.Connection, owner: str, chat_id: str) -> ChatSummary | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM chats WHERE {_LIVE} AND id = ?", (owner, chat_id)).fetchone()
    return None if row is None else _head(row)


def _head(row: Sequence[Any]) -> ChatSummary:
    facts: dict[str, Any] = dict(zip(ChatSummary.__struct_fields__, row, strict=False))
    facts["pinned"] = bool(facts["pinned"])
    return ChatSummary(**facts)


def _free_number(db: sqlite3.Connection, updated: int) -> int:
    number = updated * _NUMBERS_PER_MS
    while True:
        end = number + _NUMBERS_PER_MS
        (last,) = db.execute(
            "SELECT max(number) FROM chats WHERE number >= ? AND number < ?", (number, end)
        ).fetchone()
        if last is None:
            return number
        if last + 1 < end:
            return last + 1
        number = end


def _drop(db: sqlite3.Connection, owner: str, chat_id: str) -> None:
    chosen = "SELECT number FROM chats WHERE owner = ? AND id = ?"
    db.execute(f"DELETE FROM words WHERE rowid = ({chosen})", (owner, chat_id))
    db.execute("DELETE FROM chats WHERE owner = ? AND id = ?", (owner, chat_id))


def _purge(db: sqlite3.Connection) -> None:
    """Within a transaction. Erases what was deleted so long ago that it cannot be restored."""
    until = _now() - RESTORABLE_MS
    chosen = "SELECT number FROM chats WHERE deleted <= ?"
    if db.execute(f"DELETE FROM words WHERE rowid IN ({chosen})", (until,)).rowcount > 0:
        db.execute("DELETE FROM chats WHERE deleted <= ?", (until,))
        # The index keeps deleted words until its parts are merged.
        db.execute("INSERT INTO words (words) VALUES ('optimize')")


def _token(owner: str) -> str:
    """One word that stands for the owner in the index."""
    return blake2b(owner.encode(), digest_size=16).hexdigest()


def _now() -> int:
    return time.time_ns() // 1_000_000
