"""What is old goes when something new is stored; what is unfinished stays."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from jan_serve.journal.answers import AnswerTable, OpenAnswer
from jan_serve.journal.batches import ENDED, Batch, BatchFacts, BatchTable, State
from jan_serve.journal.files import FileTable, new_file
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.pages import PageRequest
from jan_serve.journal.room import KEPT_S, expire

pytestmark = pytest.mark.anyio

NOW = int(time.time())


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    yield journal
    await journal.close()


async def store_something(kind: str, journal: Journal) -> None:
    match kind:
        case "file":
            await FileTable(journal).add(new_file("b", NOW, "batch", "new", 1, None), b"x")
        case "answer":
            await AnswerTable(journal).begin(OpenAnswer("resp_new", "b", NOW, b"{}"))
        case _:
            await BatchTable(journal).add(batch("validating", NOW + 1), b"x")


def batch(state: State, created: int) -> Batch:
    return Batch(
        id=f"batch_{state}_{created}",
        owner="a",
        dialect="openai",
        state=state,
        created=created,
        expires=NOW + 1_000,
        facts=BatchFacts(),
    )


async def rows(journal: Journal, table: str) -> set[str]:
    return await journal.run(lambda db: {row[0] for row in db.execute(f"SELECT id FROM {table}")})


@pytest.mark.parametrize("kind", ["file", "answer", "batch"])
async def test_the_old_goes_when_something_is_stored(journal: Journal, kind: str) -> None:
    old = NOW - KEPT_S - 1
    files, answers, batches = FileTable(journal), AnswerTable(journal), BatchTable(journal)
    late, early, lasting = (new_file("a", old, "batch", "f", 1, at) for at in (NOW - 1, NOW + 1_000, None))
    for file in (late, early, lasting):
        await files.add(file, b"x")
    for name, created in (("old", old), ("open", old), ("young", NOW)):
        await answers.begin(OpenAnswer(name, "a", created, b"{}"))
    for name in ("old", "young"):
        await answers.end(name, b"{}", ())
    for state in get_args(State):
        for created in (old, NOW):
            await batches.add(batch(state, created), None)
    await store_something(kind, journal)
    assert await rows(journal, "files") >= {early.id, lasting.id}
    assert late.id not in await rows(journal, "files")
    assert await rows(journal, "answers") - {"resp_new"} == {"open", "young"}
    assert await rows(journal, "batches") >= {batch(state, NOW).id for state in get_args(State)}
    for state in get_args(State):
        assert (batch(state, old).id in await rows(journal, "batches")) == (state not in ENDED)


async def test_what_is_old_goes_by_an_index_and_a_bounded_number_at_a_time(journal: Journal) -> None:
    old, many = NOW - KEPT_S - 1, 100
    for number in range(many):
        name = f"{number:03}"
        await FileTable(journal).add(new_file("a", old, "batch", name, 1, NOW + 1_000), b"x")
        await AnswerTable(journal).begin(OpenAnswer(name, "a", old, b"{}"))
        await BatchTable(journal).add(msgspec.structs.replace(batch("validating", old), id=name), None)

    def end_all(db: sqlite3.Connection) -> None:
        db.execute("UPDATE files SET expires = ?", (NOW - 1,))
        db.execute("UPDATE answers SET reply = x'7b7d'")
        db.execute("UPDATE batches SET state = 'completed'")

    def expired(db: sqlite3.Connection) -> tuple[list[str], list[int]]:
        commands = list[str]()
        db.set_trace_callback(commands.append)
        expire(db)
        db.set_trace_callback(None)
        plans = [
            row[3]
            for command in commands
            for row in db.execute(f"EXPLAIN QUERY PLAN {command}")
            if command.startswith("DELETE")
        ]
        counts = [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("files", "answers", "batches")
        ]
        return plans, counts

    await journal.run(end_all)
    left = many
    while left:
        plans, counts = await journal.run(expired)
        assert plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]
        assert len(set(counts)) == 1
        assert 0 < left - counts[0] <= many / 2
        left = counts[0]


async def test_an_expired_file_is_not_shown(journal: Journal) -> None:
    files = FileTable(journal)
    file = new_file("a", NOW - 10, "batch", "f", 1, NOW - 1)
    await files.add(file, b"x")
    assert await files.find("a", file.id) is None
    assert await files.content("a", file.id) is None
    assert await files.page("a", PageRequest(10)) == ([], False)
