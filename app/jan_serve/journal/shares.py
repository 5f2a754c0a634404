"""How much of a file one key may fill, where there are several: a half, so that the others have room."""

from __future__ import annotations

import sqlite3
from typing import Final

from jan_serve.core.caller import key_of
from jan_serve.errors import InsufficientStorage
from jan_serve.journal.journal import Journal

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
