"""Room in the journal and the file of chats: no key fills more than a half, where there are several, so that the others
have room. What is old goes from the journal before anything new is stored."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from jan_serve.core.caller import key_of
from jan_serve.errors import InsufficientStorage
from jan_serve.journal.journal import Journal

KEPT_S: Final = 30 * 86_400
"""How long answers, batches that have ended and, unless they say otherwise, their files stay."""

_AT_ONCE: Final = 32
"""Rows of a kind that go with one that is stored: more than come, so that none stays."""

ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
IS_OPEN: Final = f"state NOT IN ({', '.join(repr(state) for state in sorted(ENDED))})"


def expire(db: sqlite3.Connection) -> None:
    """Within a transaction: some of what is old, by an index. What is unfinished stays."""
    now = int(time.time())
    _delete(db, "files", "expires <= ?", now)
    _delete(db, "answers", "reply IS NOT NULL AND created <= ?", now - KEPT_S)
    for state in ENDED:
        _delete(db, "batches", f"state = '{state}' AND created <= ?", now - KEPT_S)


def _delete(db: sqlite3.Connection, table: str, condition: str, until: int) -> None:
    rows = f"SELECT rowid FROM {table} WHERE {condition} LIMIT {_AT_ONCE}"
    db.execute(f"DELETE FROM {table} WHERE rowid IN ({rows})", (until,))


_KEY: Final = "substr(owner, 1, instr(owner || '/', '/') - 1) = ?"


def check_share(db: sqlite3.Connection, owner: str, size: int, journal: Journal) -> None:
    """Within a transaction that adds `size` bytes. Raises InsufficientStorage."""
    key = key_of(owner)
    content, max_bytes = journal.content, journal.max_bytes
    share = max_bytes // 2 if key else max_bytes
    pages, free, page_size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    if not key or (pages - free) * page_size + size <= share:
        return
    stored = size + sum(
        db.execute(f"SELECT coalesce(sum({length}), 0) FROM {rows} WHERE {_KEY}", (key,)).fetchone()[0]
        for rows, length in content.stored
    )
    if stored > share:
        raise InsufficientStorage(
            f"This key would have {stored} bytes in the {content.name}, and may have {share}: half of"
            f" `{content.setting}`, since there are other keys. {content.deletable}"
        )
