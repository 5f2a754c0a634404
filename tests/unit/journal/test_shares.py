"""Where there are several keys, none fills the journal alone, whatever it stores."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jan_serve.core.caller import salt_of
from jan_serve.errors import InsufficientStorage
from jan_serve.journal.answers import AnswerTable, OpenAnswer
from jan_serve.journal.batches import Batch, BatchFacts, BatchTable, Line, Reply
from jan_serve.journal.files import FileTable, new_file
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.logs import Log, Work, add_log

pytestmark = pytest.mark.anyio

MAX_BYTES = 4 << 20
PIECE = b"x" * (128 << 10)
NOW = int(time.time())


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / FILE_NAME, MAX_BYTES)
    yield journal
    await journal.close()


def batch_of(owner: str, name: str) -> Batch:
    return Batch(
        id=name, owner=owner, dialect="x", state="in_progress", created=NOW, expires=NOW + 9, facts=BatchFacts()
    )  # fmt: skip


async def store(kind: str, journal: Journal, owner: str, number: int) -> None:
    name = f"{owner}-{number}"
    match kind:
        case "file":
            await FileTable(journal).add(new_file(owner, NOW, "batch", "f", len(PIECE), None), PIECE)
        case "request":
            await AnswerTable(journal).begin(OpenAnswer(name, owner, NOW, PIECE))
        case "reply":
            table = AnswerTable(journal)
            await table.begin(OpenAnswer(name, owner, NOW, b"{}"))
            await table.end(name, PIECE, ())
        case "events":
            await AnswerTable(journal).begin(OpenAnswer(name, owner, NOW, b"{}"))
            await add_log(journal, Work(owner, name), Log("w", PIECE))
        case "input":
            await BatchTable(journal).add(batch_of(owner, name), PIECE)
        case "lines":
            body = b'{"model": "' + PIECE + b'"}'
            await BatchTable(journal).add(batch_of(owner, name), None, [Line("a", "/x", body)])
        case "logs":
            batch = batch_of(owner, name)
            await BatchTable(journal).add(batch, None, [Line("a", "/x", b"{}")])
            await add_log(journal, Work(owner, batch.id, 0), Log("w", PIECE))
        case _:
            batch, table = batch_of(owner, name), BatchTable(journal)
            await table.add(batch, None, [Line("a", "/x", b"{}")])
            await table.answer(batch, 0, Reply(200, PIECE, "r"))


async def filled(kind: str, journal: Journal, owner: str) -> int:
    """How many pieces this owner can store."""
    number = 0
    while True:
        try:
            await store(kind, journal, owner, number)
        except InsufficientStorage as error:
            assert ("half of `journal_bytes`" in error.message) == bool(owner)
            return number
        number += 1


async def test_an_answer_that_is_being_written_counts_in_the_share_of_its_key(journal: Journal) -> None:
    await AnswerTable(journal).begin(OpenAnswer("answer", "one", NOW, b"{}"))
    number = 0
    with pytest.raises(InsufficientStorage, match="half of"):
        while True:
            await add_log(journal, Work("one", "answer"), Log("w", PIECE))
            number += 1
    assert MAX_BYTES // 2 // len(PIECE) - 2 <= number <= MAX_BYTES // 2 // len(PIECE) + 1
    await FileTable(journal).add(new_file("two", NOW, "batch", "f", len(PIECE), None), PIECE)


@pytest.mark.parametrize("kind", ["file", "request", "reply", "events", "input", "lines", "logs", "answers"])
async def test_a_key_has_half_of_the_journal(journal: Journal, kind: str) -> None:
    share = MAX_BYTES // 2 // len(PIECE)
    assert share - 2 <= await filled(kind, journal, "one") <= share + 1
    assert await filled(kind, journal, salt_of("one", "whom it acts for")) <= 1
    for number in range(share // 2):
        await store(kind, journal, "two", number)


async def test_without_several_keys_all_of_the_journal_is_there(journal: Journal) -> None:
    assert await filled("file", journal, "") > MAX_BYTES // len(PIECE) * 0.8
