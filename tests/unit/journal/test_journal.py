"""The file of the journal: damaged, of other versions, in use, unreadable."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from jan_serve.errors import StoreError
from jan_serve.journal.answers import AnswerTable, OpenAnswer
from jan_serve.journal.background import Background
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.schema import MIGRATIONS

pytestmark = pytest.mark.anyio

ANSWER = OpenAnswer("resp_1", "", 1, b"{}", 7, (b"one",))


async def fill(path: Path) -> None:
    journal = Journal(path, 1 << 30)
    table = AnswerTable(journal)
    await table.begin(ANSWER)
    await table.add(ANSWER.id, 0, ANSWER.events)
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


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
async def test_a_file_of_an_older_version_keeps_what_it_has(tmp_path: Path, version: int) -> None:
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as db:
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        db.execute(f"PRAGMA user_version = {version}")
        if version:
            db.execute(
                "INSERT INTO answers (id, owner, created, request, seed) VALUES ('resp_1', '', 1, ?, 7)",
                (b"{}",),
            )
            db.execute("INSERT INTO answer_events VALUES ('resp_1', 0, ?)", (b"one",))
    assert await found(path) == ([ANSWER] if version else [])
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


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
    await table.begin(OpenAnswer("resp_1", "", 1, secret, 7))
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
            raise StoreError("It is in use.")
        begun.set()

    background = Background(Journal(tmp_path / FILE_NAME, 1 << 30))
    background.at_start(begin)
    await background.start()
    async with asyncio.timeout(60):
        await begun.wait()
    await background.stop()
    assert tries == 4
