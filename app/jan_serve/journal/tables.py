"""What tables have in common: a transaction for each method, pages of a list, and room for every key."""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from jan_serve.core.caller import key_of
from jan_serve.errors import InsufficientStorage, InvalidRequest
from jan_serve.journal.journal import Journal

KEPT_S: Final = 30 * 86_400
"""How long answers, batches that have ended and, unless they say otherwise, their files stay."""

_AT_ONCE: Final = 32
"""Rows of a kind that go with one that is stored: more than come, so that none stays."""

ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
IS_OPEN: Final = f"state NOT IN ({', '.join(repr(state) for state in sorted(ENDED))})"
_KEY: Final = "substr(owner, 1, instr(owner || '/', '/') - 1) = ?"

P = ParamSpec("P")
R = TypeVar("R")


class Table:
    """Tables of one file. Each method is a transaction, and raises as Journal.run. What takes long in it goes before or
    behind the transaction: the file has one thread."""

    def __init__(self, journal: Journal) -> None:
        self.journal: Final = journal


T = TypeVar("T", bound=Table)


def transaction(
    method: Callable[Concatenate[T, sqlite3.Connection, P], R],
) -> Callable[Concatenate[T, P], Coroutine[Any, Any, R]]:
    """Makes a method that runs whole in the thread of its journal, with the connection: see Journal.run."""

    @functools.wraps(method)
    async def run(table: T, *args: P.args, **kwargs: P.kwargs) -> R:
        return await table.journal.run(lambda db: method(table, db, *args, **kwargs))

    return run


def expire(db: sqlite3.Connection) -> None:
    """Delete some of what is old, by an index, before something new is stored. What is unfinished stays."""
    now = int(time.time())
    _delete(db, "files", "expires <= ?", now)
    _delete(db, "answers", "reply IS NOT NULL AND created <= ?", now - KEPT_S)
    for state in ENDED:
        _delete(db, "batches", f"state = '{state}' AND created <= ?", now - KEPT_S)


def _delete(db: sqlite3.Connection, table: str, condition: str, until: int) -> None:
    rows = f"SELECT rowid FROM {table} WHERE {condition} LIMIT {_AT_ONCE}"
    db.execute(f"DELETE FROM {table} WHERE rowid IN ({rows})", (until,))


def check_share(db: sqlite3.Connection, owner: str, size: int, journal: Journal) -> None:
    """Within a transaction that adds `size` bytes. Raises InsufficientStorage.

    No key fills more than a half, where there are several, so that the others have room.
    """
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


class Mark(msgspec.Struct, frozen=True):
    """A row that a request names, which the page does not have. field: the request's name for it."""

    field: str
    id: str


class PageRequest(msgspec.Struct, frozen=True):
    """The first rows after one; with `before` alone, the last ones before one. ascends: the earliest come first."""

    limit: int
    after: Mark | None = None
    before: Mark | None = None
    ascends: bool = False


def read_page(
    db: sqlite3.Connection,
    source: tuple[str, str],
    columns: str,
    conditions: dict[str, Any],
    asked: PageRequest,
) -> tuple[list[Any], bool]:
    """The rows, and whether there are more. A page costs the same wherever it is.

    source: a table, and a further condition. conditions: the values of columns, which begin an index that `created`
    ends. Raises InvalidRequest for a mark that is not in the list.
    """
    table, condition = source
    where = " AND ".join([condition, *(f"{column} = ?" for column in conditions)])
    values = [*conditions.values()]
    bounds, places = list[str](), list[int]()
    for mark, is_earlier in ((asked.after, not asked.ascends), (asked.before, asked.ascends)):
        if mark is None:
            continue
        row = db.execute(f"SELECT created, rowid FROM {table} WHERE {where} AND id = ?", (*values, mark.id))
        if (place := row.fetchone()) is None:
            raise InvalidRequest(f"{mark.field}: there is no item {mark.id[:100]!r}", param=mark.field)
        bounds.append(f" AND (created, rowid) {'<' if is_earlier else '>'} (?, ?)")
        places += place
    from_end = asked.before is not None and asked.after is None
    way = "ASC" if asked.ascends != from_end else "DESC"
    rows: Sequence[Any] = db.execute(
        f"SELECT {columns} FROM {table} WHERE {where}{''.join(bounds)}"
        f" ORDER BY created {way}, rowid {way} LIMIT ?",
        (*values, *places, asked.limit + 1),
    ).fetchall()
    shown = rows[: asked.limit]
    return [*(reversed(shown) if from_end else shown)], len(rows) > asked.limit
