"""Lists are read a page at a time, whatever their length; what is old goes when something new is stored."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.journal.answers import AnswerTable, OpenAnswer
from jan_serve.journal.batches import ENDED, Batch, BatchFacts, BatchTable, State
from jan_serve.journal.files import FileTable, new_file
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.tables import KEPT_S, Mark, PageRequest, expire

pytestmark = pytest.mark.anyio

LISTS = ["batches", "files", "files of a purpose"]
ROWS = 4_000
LIMIT = 10


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    yield journal
    await journal.close()


async def fill(journal: Journal, rows: int) -> list[str]:
    """The ids of one list, the latest first: seven a second, among as many of other lists."""
    numbers = range(rows)

    def work(db: sqlite3.Connection) -> None:
        db.executemany(
            "INSERT INTO batches VALUES (?, ?, ?, 'completed', ?, ?, x'7b7d', NULL)",
            [(f"{owner}{dialect}{number}", owner, dialect, number // 7, 9)
             for number in numbers for owner, dialect in (("a", "x"), ("a", "y"), ("b", "x"))],
        )  # fmt: skip
        db.executemany(
            "INSERT INTO files VALUES (?, ?, ?, NULL, ?, 'f', 1, x'00')",
            [(f"{owner}{purpose}{number}", owner, number // 7, purpose)
             for number in numbers for owner, purpose in (("a", "x"), ("b", "x"), ("b", "y"))],
        )  # fmt: skip

    await journal.run(work)
    return [f"ax{number}" for number in reversed(numbers)]


async def shown(journal: Journal, kind: str, asked: PageRequest) -> tuple[list[str], bool]:
    if kind == "batches":
        found: tuple[list[Any], bool] = await BatchTable(journal).page("a", "x", asked)
    else:
        found = await FileTable(journal).page("a", asked, None if kind == "files" else "x")
    return [row.id for row in found[0]], found[1]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("ascends", [False, True])
async def test_pages_that_follow_each_other_have_each_row_once(
    journal: Journal, kind: str, ascends: bool
) -> None:
    ids = await fill(journal, 40)
    ids = ids[::-1] if ascends else ids
    for limit in (1, 7, 39, 40, 41):
        read, mark, has_more = list[str](), None, True
        while has_more:
            page, has_more = await shown(journal, kind, PageRequest(limit, mark, ascends=ascends))
            read += page
            mark = Mark("after", read[-1])
        assert read == ids
        back, mark, has_more = list[str](), Mark("before", ids[-1]), True
        while has_more:
            page, has_more = await shown(journal, kind, PageRequest(limit, before=mark, ascends=ascends))
            back = page + back
            mark = Mark("before", back[0])
        assert back == ids[:-1]
    between = PageRequest(5, Mark("after", ids[3]), Mark("before", ids[12]), ascends)
    assert await shown(journal, kind, between) == (ids[4:9], True)


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("known", ["bx3", "none", ""])
async def test_a_mark_that_is_not_in_the_list_is_named(journal: Journal, kind: str, known: str) -> None:
    await fill(journal, 5)
    for asked in (PageRequest(5, Mark("after_id", known)), PageRequest(5, before=Mark("after_id", known))):
        with pytest.raises(InvalidRequest, match=f"^after_id: there is no item '{known}'"):
            await shown(journal, kind, asked)


@pytest.mark.parametrize("kind", LISTS)
async def test_a_page_takes_the_same_work_wherever_it_is(journal: Journal, kind: str) -> None:
    ids = await fill(journal, ROWS)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await journal.run(lambda db: db.set_progress_handler(count, 1))
    for start in (0, 1, ROWS // 2, ROWS - 2 * LIMIT):
        for ascends in (False, True):
            there = ids[::-1] if ascends else ids
            after = Mark("after", there[start])
            before = Mark("before", there[start + LIMIT + 1])
            for asked in (
                PageRequest(LIMIT, after, ascends=ascends),
                PageRequest(LIMIT, None, before, ascends),
            ):
                steps = 0
                page, _ = await shown(journal, kind, asked)
                assert page == there[start + 1 : start + 1 + LIMIT]
                assert 0 < steps < ROWS // 4  # a query that reads all of the list takes some steps a row


NOW = int(time.time())


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
