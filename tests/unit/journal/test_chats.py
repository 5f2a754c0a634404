"""Chats in their file: lists, searches, versions, deletions, and what a damaged or a full file does to them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InsufficientStorage
from jan_serve.journal import chats as chats_module
from jan_serve.journal.chat_words import excerpt, searchable
from jan_serve.journal.chats import (
    RESTORABLE_MS,
    ChatQuery,
    ChatSummary,
    ChatTable,
    ChatToStore,
    Conflict,
)
from jan_serve.journal.journal import Journal
from jan_serve.journal.schema import CHATS, CHATS_FILE

pytestmark = pytest.mark.anyio

FIRST_MS = 1_700_000_000_000


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[ChatTable]:
    journal = Journal(tmp_path / CHATS_FILE, 1 << 30, CHATS)
    yield ChatTable(journal)
    await journal.close()


def chat(name: str, text: str = "", at: int | None = None, **facts: str | bool) -> ChatToStore:
    changes = {"title": name, "content": f'["{name}"]'.encode(), **facts}
    return ChatToStore(id=name, text=text, messages=1, updated=at, **changes)  # pyright: ignore[reportArgumentType]


async def names(table: ChatTable, owner: str = "", **asked: object) -> list[str]:
    listed, _ = await table.page(owner, ChatQuery(**{"limit": 100, **asked}))  # pyright: ignore[reportArgumentType]
    return [each.head.id for each in listed]


async def put(table: ChatTable, written: ChatToStore, version: int, owner: str = "") -> ChatSummary:
    done = await table.put(owner, written, version)
    assert isinstance(done, ChatSummary), done
    return done


async def test_the_file_is_for_its_user_alone(table: ChatTable, tmp_path: Path) -> None:
    await table.add("", [chat("one")])
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
@pytest.mark.parametrize("words", ["", "fox"])
async def test_pages_have_each_chat_once_the_latest_first(table: ChatTable, limit: int, words: str) -> None:
    # Three have the same time.
    await table.add("", [chat(f"c{number}", "the fox", FIRST_MS + number // 3) for number in range(7)])
    read, before, has_more = list[str](), None, True
    while has_more:
        listed, has_more = await table.page("", ChatQuery(limit=limit, before=before, words=words))
        read += [each.head.id for each in listed]
        before = listed[-1].number
    assert read == [f"c{number}" for number in reversed(range(7))]


async def test_many_chats_of_one_time_are_all_there(table: ChatTable) -> None:
    await table.add("", [chat(f"c{number}", at=FIRST_MS) for number in range(2_100)])
    assert len(await names(table, limit=3_000)) == 2_100


async def test_what_is_written_comes_first_and_what_is_renamed_stays(table: ChatTable) -> None:
    await table.add("", [chat("old", at=FIRST_MS), chat("new", at=FIRST_MS + 1)])
    await table.change("", "old", {"title": "renamed", "pinned": True, "folder": "work"})
    assert await names(table) == ["new", "old"]
    assert (await names(table, pinned=True), await names(table, pinned=False)) == (["old"], ["new"])
    assert (await names(table, folder="work"), await names(table, folder="")) == (["old"], ["new"])
    head = await put(table, chat("old", at=None), 1)
    assert (head.title, head.folder, head.pinned, head.created) == ("renamed", "work", True, FIRST_MS)
    assert await names(table) == ["old", "new"]
    assert await names(table, words="renamed") == ["old"]


async def test_of_two_writers_the_second_is_told_of_the_first(table: ChatTable) -> None:
    assert (await put(table, chat("one"), 0)).version == 1
    assert (await put(table, chat("one", content=b"[1]"), 1)).version == 2  # pyright: ignore[reportArgumentType]
    for known in (0, 1, 3):
        assert await table.put("", chat("one"), known) == Conflict(2)
    found = await table.find("", "one")
    assert found is not None and found.content == b"[1]"
    await table.delete("", "one")
    for known in (0, 2):
        assert await table.put("", chat("one"), known) == Conflict(None)
    assert await table.put("", chat("unknown"), 1) == Conflict(None)


async def test_a_deletion_can_be_taken_back_for_a_day(
    table: ChatTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "confidential"
    await table.add("", [chat("one", f"{secret} fox"), chat("two", "fox")])
    assert await table.delete("", "one") and not await table.delete("", "one")
    assert await names(table) == await names(table, words="fox") == ["two"]
    assert await table.find("", "one") is await table.change("", "one", {"title": "x"}) is None
    assert await table.restore("", "one") is not None
    assert set(await names(table, words="fox")) == {"one", "two"}
    await table.delete("", "one")
    now = chats_module._now()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(chats_module, "_now", lambda: now + RESTORABLE_MS + 60_000)
    assert await table.restore("", "one") is None
    await table.journal.close()
    assert all(secret.encode() not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_key_sees_no_chat_of_another_one(table: ChatTable) -> None:
    await table.add("a", [chat("one", "fox", folder="work")])
    await table.add("b", [chat("one", "dog"), chat("two", "fox")])
    assert (await names(table, "a"), await names(table, "a", words="fox")) == (["one"], ["one"])
    assert await table.find("a", "two") is None
    assert not await table.delete("a", "two")
    assert await table.restore("a", "two") is await table.change("a", "two", {"pinned": True}) is None
    assert (await table.folders("a"), await table.folders("b")) == ([("work", 1)], [])
    assert await table.rename_folder("b", "work", "x") == 0
    await put(table, chat("one", "cat"), 1, "b")
    assert await names(table, "a", words="fox") == ["one"]
    assert await table.store_id("a") != await table.store_id("b")


async def test_folders_are_renamed_and_left(table: ChatTable) -> None:
    await table.add("", [chat("one", folder="a"), chat("two", folder="b"), chat("three")])
    assert await table.folders("") == [("a", 1), ("b", 1)]
    assert await table.rename_folder("", "a", "b") == 1
    assert await table.folders("") == [("b", 2)]
    assert await table.rename_folder("", "b", "") == 2
    assert await table.folders("") == []


async def test_what_is_there_is_not_added_again_and_what_was_deleted_is(table: ChatTable) -> None:
    assert await table.add("", [chat("one", "fox"), chat("two"), chat("one", "dog")]) == 2
    assert await names(table, words="dog") == []
    await table.delete("", "one")
    assert await table.add("", [chat("one", "dog"), chat("two")]) == 1
    assert await names(table, words="dog") == ["one"]
    assert await names(table, words="fox") == []


FOUND = {
    "quick": True,
    "QUI": True,
    "fox quick": True,
    "uick": False,
    "quick cat": False,
    "cafe": True,
    "naïve": True,
    "it's": True,
    '"quick" OR cat': False,
    "quick*": True,
    "title : quick": True,
    "owner": False,
    "NEAR(quick fox)": False,
    "東京": True,
    "京都に": True,
    "都東": False,
    "ไทย": True,
    "c++": True,
    "1.5": True,
    "🦊": False,
    "!?": False,
    "x" * 400: False,
    "\0quick\0": True,
    '""" " "': False,
}


@pytest.mark.parametrize("words", FOUND)
async def test_words_are_found_by_how_they_begin(table: ChatTable, words: str) -> None:
    text = "The quick brown fox's café, it's naive: 東京と京都に行く ภาษาไทย C++ 1.5"
    await table.add("", [chat("one", text, title="A title"), chat("other", "something else")])
    assert await names(table, words=words) == (["one"] if FOUND[words] else [])


async def test_an_excerpt_shows_the_words_where_they_are(table: ChatTable) -> None:
    await table.add("", [chat("one", "word " * 500 + "\nthe 東京 tower " + "word " * 500)])
    listed, _ = await table.page("", ChatQuery(limit=1, words="東京"))
    assert "the 東京 tower" in listed[0].excerpt
    assert len(listed[0].excerpt) < 100 and "\n" not in listed[0].excerpt


EXCERPTS = {
    ("cafe", "One\ntwo café three"): "One two café three",
    ("CAFÉ", "One\ntwo cafe\u0301 three"): "One two café three",
    ("it's", "That is it. It\u2019s fine"): "That is it. It\u2019s fine",
    ("nothing", "The word is in the title"): "",
    ("wo", "-" * 100 + " two words " + "-" * 100): "…" + "-" * 35 + " two words " + "-" * 44 + "…",
    ("都", "東京と京都"): "東京と京都",
}


@pytest.mark.parametrize(("words", "text"), EXCERPTS)
def test_excerpts(words: str, text: str) -> None:
    assert excerpt(searchable(text), words) == EXCERPTS[words, text]


async def test_a_word_that_a_long_chat_repeats_takes_no_long_time(table: ChatTable) -> None:
    await table.add("", [chat("one", "word " * 100_000)])
    started = time.process_time()
    listed, _ = await table.page("", ChatQuery(limit=1, words="w"))
    assert listed[0].excerpt.startswith("word word")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "asked", [{}, {"words": "fox"}, {"folder": "x"}, {"pinned": True}, {"words": "fox dog"}]
)
async def test_no_list_is_sorted_as_a_whole(table: ChatTable, asked: dict[str, Any]) -> None:
    plans = list[str]()

    def trace(db: sqlite3.Connection, command: str) -> None:
        if command.startswith("SELECT chats.id"):
            plans.extend(row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {command}"))

    journal = table.journal
    seen = list[str]()
    await journal.run(lambda db: db.set_trace_callback(seen.append))
    await names(table, **asked)
    await journal.run(lambda db: db.set_trace_callback(None))
    await journal.run(lambda db: [trace(db, command) for command in seen])
    assert plans
    assert not [plan for plan in plans if "TEMP B-TREE" in plan or plan == "SCAN chats"], plans


async def test_a_damaged_file_is_moved_aside_and_chats_go_on(
    table: ChatTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await table.add("", [chat("one")])
    before = await table.store_id("")
    journal = table.journal
    await journal.close()
    (tmp_path / CHATS_FILE).write_bytes(b"x" * 5_000)
    assert await names(table) == []
    assert "chat store" in caplog.text and ".damaged-" in caplog.text
    after = await table.store_id("")
    assert after != before and after.split(".")[0] == before.split(".")[0]
    assert (await put(table, chat("one"), 0)).version == 1


async def test_a_full_file_says_so_and_keeps_the_chat_that_it_has(tmp_path: Path) -> None:
    journal = Journal(tmp_path / CHATS_FILE, 1 << 20, CHATS)
    table = ChatTable(journal)
    try:
        await put(table, chat("one", "kept"), 0)
        with pytest.raises(InsufficientStorage, match="`chat_bytes`"):
            await table.put("", chat("one", " ".join(map(str, range(200_000)))), 1)
        assert await names(table, words="kept") == ["one"]
        assert (await put(table, chat("one", "smaller"), 1)).version == 2
    finally:
        await journal.close()


async def test_a_key_fills_half_of_the_file_where_there_are_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / CHATS_FILE, 4 << 20, CHATS)
    table = ChatTable(journal)
    piece = bytes(range(256)) * 400
    text = piece.hex()
    try:
        with pytest.raises(InsufficientStorage, match="half of `chat_bytes`"):
            for number in range(100):
                await table.add("a", [chat(f"c{number}", text)])
        assert await table.add("b", [chat("one", text)]) == 1
    finally:
        await journal.close()


async def test_other_work_goes_on_while_contents_are_packed(
    table: ChatTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress, begun, other_is_done = zlib.compress, threading.Event(), threading.Event()

    def slow(content: bytes) -> bytes:
        begun.set()
        assert other_is_done.wait(20)
        return compress(content)

    monkeypatch.setattr(zlib, "compress", slow)
    for write in (table.put("", chat("one"), 0), table.add("", [chat("two")])):
        begun.clear()
        other_is_done.clear()
        writing = asyncio.create_task(write)
        await asyncio.to_thread(begun.wait, 20)
        assert await table.folders("") == []
        other_is_done.set()
        await writing
    assert sorted(await names(table)) == ["one", "two"]
