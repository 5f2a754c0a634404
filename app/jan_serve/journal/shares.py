"""How much of the journal one key may fill, where there are several: a half, so that the others have room."""

from __future__ import annotations

import sqlite3
from typing import Final

from jan_serve.core.caller import key_of
from jan_serve.errors import InsufficientStorage

_KEY: Final = "substr(owner, 1, instr(owner || '/', '/') - 1) = ?"
_STORED: Final = (
    ("files", "length(content)"),
    ("answers", "length(request) + coalesce(length(reply) + length(frames), 0)"),
    ("batches", "length(input)"),
    ("lines JOIN batches ON batch = id", "length(body) + coalesce(length(lines.reply), 0)"),
    ("logs", "length(events)"),
)


def check_share(db: sqlite3.Connection, owner: str, size: int, max_bytes: int) -> None:
    """Within a transaction that adds `size` bytes. max_bytes: of the journal. Raises InsufficientStorage."""
    key = key_of(owner)
    share = max_bytes // 2 if key else max_bytes
    pages, free, page_size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    if not key or (pages - free) * page_size + size <= share:
        return
    stored = size + sum(
        db.execute(f"SELECT coalesce(sum({length}), 0) FROM {rows} WHERE {_KEY}", (key,)).fetchone()[0]
        for rows, length in _STORED
    )
    if stored > share:
        raise InsufficientStorage(
            f"This key would have {stored} bytes in the journal, and may have {share}: half of `journal_bytes`, since"
            " there are other keys. Delete files, batches and responses that are done."
        )
