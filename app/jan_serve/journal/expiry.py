"""What the journal deletes by itself, before it stores anything new."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

KEPT_S: Final = 30 * 86_400
"""How long answers, batches that have ended and, unless they say otherwise, their files stay."""

ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
IS_OPEN: Final = f"state NOT IN ({', '.join(repr(state) for state in sorted(ENDED))})"


def expire(db: sqlite3.Connection) -> None:
    """Within a transaction. What is unfinished stays."""
    now = int(time.time())
    db.execute("DELETE FROM files WHERE expires <= ?", (now,))
    db.execute("DELETE FROM answers WHERE created <= ? AND reply IS NOT NULL", (now - KEPT_S,))
    db.execute(f"DELETE FROM batches WHERE created <= ? AND NOT ({IS_OPEN})", (now - KEPT_S,))
