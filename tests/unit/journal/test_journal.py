"""The file of the journal: damaged, of other versions, in use, unreadable."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from jan_serve.errors import JournalUnusable, StoreError
from jan_serve.journal.answers import AnswerTable, OpenAnswer, WholeAnswer
from jan_serve.journal.background import Background
from jan_serve.journal.batches import Batch, BatchFacts, BatchTable, Line, Reply
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.logs import Log, Work, add_log, find_log
from jan_serve.journal.schema import MIGRATIONS

pytestmark = pytest.mark.anyio

ANSWER = OpenAnswer("resp_1", "", 1, b"{}", Log("w", b"one"))
BATCH = Batch(
    id="batch_1", owner="", dialect="x", state="in_progress", created=1, expires=9, facts=BatchFacts()
)  # fmt: skip


async def fill(path: Path) -> None:
    journal = Journal(path, 1 << 30)
    await AnswerTable(journal).begin(ANSWER)
    await add_log(journal, Work("", ANSWER.id), ANSWER.log)
    await journal.close()


async def found(path: Path) -> list[OpenAnswer]:
    journal = Journal(path, 1 << 30)
    try:
        return await AnswerTable(journal).open_answers()
    finally:
        await journal.close()


@pytest.mark.parametrize("place", ["head", "page", "end"])
async def test_a_damaged_file_is_moved_aside_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    path = tmp_path / FILE_NAME
    await fill(path)
    data = bytearray(path.read_bytes())
    match place:
        case "head":
            data[:16] = b"x" * 16
        case "page":
            data[4096:8192] = os.urandom(4096)
        case _:
            del data[len(data) // 2 :]
    path.write_bytes(data)
    assert await found(path) == []
    (aside,) = tmp_path.glob(f"{FILE_NAME}.damaged-*")
    assert aside.read_bytes() == data
    assert aside.name in caplog.text
    await fill(path)
    assert await found(path) == [ANSWER]


ROWS = {
    0: "INSERT INTO answers (id, owner, created, request, seed) VALUES ('resp_1', '', 1, x'7b7d', 7);"
    "INSERT INTO answer_events VALUES ('resp_1', 0, x'01'), ('resp_1', 1, x'02');",
    1: "INSERT INTO batches VALUES ('batch_1', '', 'x', 'in_progress', 1, 9, x'7b7d', NULL);"
    "INSERT INTO lines VALUES ('batch_1', 3, 0, 'a', '/x', x'7b7d', NULL, NULL, NULL);",
    3: "INSERT INTO line_logs VALUES ('batch_1', 3, 0, 'w', x'01'), ('batch_1', 3, 1, 'w', x'02');",
}
"""What is stored once the script of this number has run."""


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
async def test_a_file_of_an_older_version_keeps_what_it_has(tmp_path: Path, version: int) -> None:
    """Which weights wrote an answer of the first versions is unknown, so that none goes on with it."""
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as db:
        for number, script in enumerate(MIGRATIONS[:version]):
            db.executescript(script + ROWS.get(number, ""))
        db.execute(f"PRAGMA user_version = {version}")
    expected = OpenAnswer("resp_1", "", 1, b"{}", Log("unknown"))
    assert await found(path) == ([expected] if version else [])
    journal = Journal(path, 1 << 30)
    lines = await BatchTable(journal).open_lines(BATCH, (), 9)
    await journal.close()
    assert [(line.number, line.log) for line in lines] == (
        [(3, Log("w", b"\1\2") if version > 3 else Log())] if version > 1 else []
    )
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


@pytest.mark.parametrize("end", ["whole", "deleted"])
async def test_a_log_goes_with_its_answer_and_none_comes_behind_it(tmp_path: Path, end: str) -> None:
    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    answers, batches = AnswerTable(journal), BatchTable(journal)
    works = [Work("", ANSWER.id), Work("", BATCH.id, 0)]
    await answers.begin(ANSWER)
    await batches.add(BATCH, None, [Line("a", "/x", b"{}"), Line("b", "/x", b"{}")])
    others = [Work("", "resp_2"), Work("", BATCH.id, 1)]
    await answers.begin(OpenAnswer("resp_2", "", 1, b"{}"))
    for work in works + others:
        for events in (b"one", b"two"):
            await add_log(journal, work, Log("w", events))
        assert await journal.run(lambda db, work=work: find_log(db, work)) == Log("w", b"onetwo")
    if end == "whole":
        await answers.end(ANSWER.id, b"{}", ())
        await batches.answer(BATCH, 0, Reply(200, b"{}", "r"))
    else:
        await answers.delete("", ANSWER.id)
        await batches.end(BATCH.became("cancelled", 1), ())
    for work in works:
        await add_log(journal, work, Log("w", b"late"))
        assert await journal.run(lambda db, work=work: find_log(db, work)) == Log()
    left = [(work.id, work.line or 0) for work in others if end == "whole" or work.line is None]
    rows = await journal.run(lambda db: db.execute("SELECT DISTINCT work, line FROM logs").fetchall())
    assert sorted(rows) == sorted(left)
    await journal.close()


def test_a_reader_behind_the_end_of_an_answer_gets_its_last_frame() -> None:
    whole = WholeAnswer(b"", b"", (b"a", b"b", b"c"))
    assert [whole.behind(after) for after in (-1, 1, 2, 9)] == [
        whole.frames, (b"c",), (b"c",), (b"c",),
    ]  # fmt: skip


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer version"):
        await found(path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)
    assert len(path.read_bytes()) == len(before)


async def test_a_file_has_one_server(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    first = Journal(path, 1 << 30)
    await AnswerTable(first).begin(ANSWER)
    with pytest.raises(StoreError, match="Another server"):
        await found(path)
    await first.close()
    assert len(await found(path)) == 1


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        await found(tmp_path / "file" / FILE_NAME)


async def test_a_few_damaged_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    for day in range(1, 6):
        for end in ("", "-wal"):
            (tmp_path / f"{FILE_NAME}.damaged-2001010{day}-000000{end}").write_text("old")
    path.write_bytes(b"x" * 5_000)
    assert await found(path) == []
    left = sorted(file.name for file in tmp_path.glob("*.damaged-*") if not file.name.endswith("-wal"))
    assert [name.partition("damaged-")[2] for name in left[:2]] == ["20010104-000000", "20010105-000000"]
    assert len(left) == 3


async def test_a_deleted_text_is_not_in_the_file(tmp_path: Path) -> None:
    path, secret = tmp_path / FILE_NAME, b"a text that was deleted " * 1_000
    journal = Journal(path, 1 << 30)
    table = AnswerTable(journal)
    await table.begin(OpenAnswer("resp_1", "", 1, secret))
    await journal.close()
    assert b"a text that was deleted" in path.read_bytes()
    await table.delete("", "resp_1")
    await journal.close()
    assert all(b"a text that was deleted" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_what_the_journal_holds_is_taken_up_once_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.journal.background._AGAIN_S", 0.0)
    (tmp_path / FILE_NAME).touch()
    begun, tries = asyncio.Event(), 0

    async def begin() -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StoreError("It is in use.") if tries < 3 else MemoryError
        begun.set()

    background = Background(Journal(tmp_path / FILE_NAME, 1 << 30))
    background.at_start(begin)
    await background.start()
    async with asyncio.timeout(60):
        await begun.wait()
    await background.stop()
    assert tries == 4


async def test_a_cancelled_call_is_no_cancelled_work_though_the_thread_has_other_work(tmp_path: Path) -> None:
    journal, go_on = Journal(tmp_path / FILE_NAME, 1 << 30), threading.Event()
    await fill(journal.path)
    other = asyncio.create_task(journal.run(lambda _: go_on.wait(60)))
    added = asyncio.create_task(add_log(journal, Work("", ANSWER.id), Log("w", b" two")))
    await asyncio.sleep(0)
    added.cancel()
    with pytest.raises(asyncio.CancelledError):
        await added
    go_on.set()
    assert await other
    assert await journal.run(lambda db: find_log(db, Work("", ANSWER.id))) == Log("w", b"one two")
    await journal.close()


async def test_work_for_which_there_is_no_thread_is_refused_and_not_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(JournalUnusable, match="no memory"):
            await AnswerTable(journal).begin(ANSWER)
    assert await AnswerTable(journal).open_answers() == []
    await journal.close()


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "Too many open files")])
async def test_a_lack_of_memory_or_descriptors_says_that_the_journal_cannot_be_used_now(
    tmp_path: Path, error: Exception
) -> None:
    def work(_: sqlite3.Connection) -> None:
        raise error

    await fill(tmp_path / FILE_NAME)
    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    with pytest.raises(JournalUnusable):
        await journal.run(work)
    assert await AnswerTable(journal).open_answers() == [ANSWER]
    await journal.close()
