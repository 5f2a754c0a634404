"""Batches in the journal: their lines, each of which is answered once, and the files that they leave."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from jan_serve.journal.files import StoredFile, insert_file
from jan_serve.journal.logs import Log, Work, find_log
from jan_serve.journal.tables import (
    ENDED,
    IS_OPEN,
    PageRequest,
    Table,
    check_share,
    expire,
    read_page,
    transaction,
)

logger = logging.getLogger(__name__)

State = Literal["validating", "in_progress", "cancelling", "completed", "failed", "expired", "cancelled"]


class LineFault(msgspec.Struct, frozen=True):
    """Why an input cannot be a batch. line: from 1 in a file, from 0 in a list; None for the whole of it."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """Lines. failed: with a status of 400 and more."""

    total: int = 0
    done: int = 0
    failed: int = 0


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """endpoint: path of all lines; empty if each has its own. times: when it came into a state. counts: of an ended
    batch. model: of its first line. trace: headers that name the span of the request that made it."""

    endpoint: str = ""
    window: str = "24h"
    metadata: dict[str, str] | None = None
    input_file: str | None = None
    output_file: str | None = None
    error_file: str | None = None
    output_ttl_s: int | None = None
    faults: tuple[LineFault, ...] = ()
    times: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    counts: Counts = Counts()
    model: str | None = None
    trace: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """dialect: whose forms its files have."""

    id: str
    owner: str
    dialect: str
    state: State
    created: int
    expires: int
    facts: BatchFacts

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def became(self, state: State, now: int, **changes: Any) -> Batch:
        times = self.facts.times | {state: now}
        facts = msgspec.structs.replace(self.facts, times=times, **changes)
        return msgspec.structs.replace(self, state=state, facts=facts)


class Line(msgspec.Struct, frozen=True):
    """A request of a batch. body: JSON."""

    custom_id: str
    path: str
    body: bytes


class OpenLine(msgspec.Struct, frozen=True):
    """log: of an answer that was cut off."""

    number: int
    line: Line
    log: Log = Log()


class Reply(msgspec.Struct, frozen=True):
    """What a request was answered with. body: JSON."""

    status: int
    body: bytes
    request_id: str


class EndedLine(msgspec.Struct, frozen=True):
    """reply: None if the batch ended before."""

    number: int
    custom_id: str
    reply: Reply | None


_COLUMNS: Final = ", ".join(Batch.__struct_fields__)
_COUNTS: Final = "SELECT count(*), count(status), coalesce(sum(status >= 400), 0) FROM lines WHERE batch = ?"


class BatchTable(Table):
    @transaction
    def add(
        self, db: sqlite3.Connection, batch: Batch, content: bytes | None, lines: Sequence[Line] = ()
    ) -> None:
        """content: lines that are not checked yet. lines: those that are."""
        expire(db)
        size = len(content or b"") + sum(len(line.body) for line in lines)
        check_share(db, batch.owner, size, self.journal)
        *values, facts = msgspec.structs.astuple(batch)
        row = (*values, msgspec.json.encode(facts), content)
        db.execute(f"INSERT INTO batches ({_COLUMNS}, input) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        _insert_lines(db, batch.id, lines)

    @transaction
    def find(self, db: sqlite3.Connection, owner: str, batch_id: str) -> Batch | None:
        command = f"SELECT {_COLUMNS} FROM batches WHERE owner = ? AND id = ?"
        row = db.execute(command, (owner, batch_id)).fetchone()
        return None if row is None else _counted(db, _batch(row))

    @transaction
    def page(
        self, db: sqlite3.Connection, owner: str, dialect: str, asked: PageRequest
    ) -> tuple[list[Batch], bool]:
        """A page of batches with their counts; see `read_page`."""
        conditions = {"owner": owner, "dialect": dialect}
        rows, has_more = read_page(db, ("batches", "true"), _COLUMNS, conditions, asked)
        return [_counted(db, _batch(row)) for row in rows], has_more

    @transaction
    def open_batches(self, db: sqlite3.Connection) -> list[Batch]:
        """Those of all owners that have not ended, the oldest first, without counts.

        One that cannot be read has failed, and its row stays as it is.
        """
        rows = db.execute(f"SELECT {_COLUMNS} FROM batches WHERE {IS_OPEN} ORDER BY created, rowid")
        batches = [_batch(row) for row in rows.fetchall()]
        for batch in batches:
            if batch.has_ended:
                text = "%s in the journal cannot be read, and has failed: its row and its lines stay there"
                logger.error(text, batch.id)
                db.execute("UPDATE batches SET state = ? WHERE id = ?", (batch.state, batch.id))
        return [batch for batch in batches if not batch.has_ended]

    @transaction
    def content(self, db: sqlite3.Connection, batch_id: str) -> bytes:
        return db.execute("SELECT input FROM batches WHERE id = ?", (batch_id,)).fetchone()[0]

    @transaction
    def began(self, db: sqlite3.Connection, batch: Batch, lines: Sequence[Line]) -> None:
        """Its input was checked. Without effect on one that is not `validating` any more."""
        if _change(db, batch, "state = 'validating'"):
            db.execute("UPDATE batches SET input = NULL WHERE id = ?", (batch.id,))
            _insert_lines(db, batch.id, lines)

    @transaction
    def change(self, db: sqlite3.Connection, batch: Batch) -> bool:
        """The state and the facts of one that has not ended. Returns whether there is such a one."""
        return _change(db, batch, IS_OPEN)

    @transaction
    def open_lines(
        self, db: sqlite3.Connection, batch: Batch, without: Sequence[int], most: int
    ) -> list[OpenLine]:
        """The next lines in the order of work. without: numbers of those that are being answered."""
        rows = db.execute(
            "SELECT number, custom_id, path, body FROM lines WHERE batch = ? AND status IS NULL"
            f" AND number NOT IN ({', '.join('?' * len(without))}) ORDER BY rank LIMIT ?",
            (batch.id, *without, most),
        )
        return [
            OpenLine(number, Line(*row), find_log(db, Work(batch.owner, batch.id, number)))
            for number, *row in rows.fetchall()
        ]

    @transaction
    def answer(self, db: sqlite3.Connection, batch: Batch, number: int, reply: Reply) -> bool:
        """Store the answer of a line that has none; returns whether it had none."""
        check_share(db, batch.owner, len(reply.body), self.journal)
        cursor = db.execute(
            "UPDATE lines SET status = ?, reply = ?, request_id = ?"
            " WHERE batch = ? AND number = ? AND status IS NULL",
            (reply.status, reply.body, reply.request_id, batch.id, number),
        )
        return cursor.rowcount > 0

    @transaction
    def lines(self, db: sqlite3.Connection, batch_id: str) -> list[EndedLine]:
        """All of them, in the order of the input."""
        rows = db.execute(
            "SELECT number, custom_id, status, reply, request_id FROM lines WHERE batch = ? ORDER BY number",
            (batch_id,),
        )
        return [
            EndedLine(number, name, None if status is None else Reply(status, reply, request_id))
            for number, name, status, reply, request_id in rows
        ]

    @transaction
    def end(self, db: sqlite3.Connection, batch: Batch, files: Sequence[tuple[StoredFile, bytes]]) -> bool:
        """Put the files in the place of its lines. Returns whether it had not ended."""
        if not _change(db, batch, IS_OPEN):
            return False
        # First: the room of its lines is that of its files, in a journal that is full.
        db.execute("DELETE FROM lines WHERE batch = ?", (batch.id,))
        db.execute("UPDATE batches SET input = NULL WHERE id = ?", (batch.id,))
        for file, content in files:
            insert_file(db, file, content)
        return True

    @transaction
    def delete(self, db: sqlite3.Connection, owner: str, batch_id: str) -> bool:
        """Delete one that has ended, with its files. Returns whether there was such a one."""
        row = db.execute(
            f"DELETE FROM batches WHERE owner = ? AND id = ? AND NOT ({IS_OPEN}) RETURNING facts",
            (owner, batch_id),
        ).fetchone()
        if row is not None:
            facts = _facts(row[0]) or BatchFacts()
            db.executemany("DELETE FROM files WHERE id = ?", [(facts.output_file,), (facts.error_file,)])
        return row is not None


def _batch(row: Sequence[Any]) -> Batch:
    """One that cannot be read has failed."""
    *values, facts = row
    named = dict(zip(Batch.__struct_fields__, values, strict=False))
    if (found := _facts(facts)) is not None:
        return Batch(**named, facts=found)
    fault = LineFault("server_error", "What the journal knew of this batch cannot be read. Send it again.")
    return Batch(**named, facts=BatchFacts()).became("failed", named["created"], faults=(fault,))


def _facts(content: bytes) -> BatchFacts | None:
    """None if they cannot be read."""
    try:
        return msgspec.json.decode(content, type=BatchFacts)
    except ValueError:
        return None


def _counted(db: sqlite3.Connection, batch: Batch) -> Batch:
    if batch.has_ended:
        return batch
    counts = Counts(*db.execute(_COUNTS, (batch.id,)).fetchone())
    return msgspec.structs.replace(batch, facts=msgspec.structs.replace(batch.facts, counts=counts))


def _change(db: sqlite3.Connection, batch: Batch, condition: str) -> bool:
    cursor = db.execute(
        f"UPDATE batches SET state = ?, facts = ? WHERE id = ? AND {condition}",
        (batch.state, msgspec.json.encode(batch.facts), batch.id),
    )
    return cursor.rowcount > 0


def _insert_lines(db: sqlite3.Connection, batch_id: str, lines: Sequence[Line]) -> None:
    ranks = ranked(lines)
    db.executemany(
        "INSERT INTO lines (batch, number, rank, custom_id, path, body) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (batch_id, number, rank, line.custom_id, line.path, line.body)
            for number, (line, rank) in enumerate(zip(lines, ranks, strict=True))
        ],
    )


_PROMPT: Final = ("tools", "instructions", "system", "messages", "prompt", "input")
"""Members of a body in the order in which templates write them."""


def ranked(lines: Sequence[Line]) -> list[int]:
    """Places of the lines in the order of work: by model, then by the prompt as text, so that common prefixes meet."""
    keys = [prompt_key(line.body) for line in lines]
    order = sorted(range(len(lines)), key=keys.__getitem__)
    ranks = [0] * len(lines)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks


def prompt_key(body: bytes) -> str:
    """What a body asks which model, as a text whose beginning is the prompt's."""
    value = msgspec.json.decode(body)
    members = [value.get("model"), *(value.get(name) for name in _PROMPT)]
    return msgspec.json.encode([member for member in members if member is not None]).decode()
