"""Lists are read a page at a time, whatever their length and wherever the page is."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.journal.batches import BatchTable
from jan_serve.journal.files import FileTable
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.pages import Mark, PageRequest

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
