"""What the journal deletes by itself, before it stores anything new."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

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
