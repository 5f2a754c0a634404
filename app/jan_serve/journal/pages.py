"""A page of a list, read by its place in the index: a page costs the same wherever it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from jan_serve.errors import InvalidRequest


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
    """The rows, and whether there are more.

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
