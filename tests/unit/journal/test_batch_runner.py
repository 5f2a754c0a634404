"""Which batch works, and what one of them that cannot go on does to the others."""

from __future__ import annotations

import asyncio
import errno
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.transcript import Transcript
from jan_serve.errors import InsufficientStorage
from jan_serve.journal.background import Background
from jan_serve.journal.batch_runner import BatchRunner
from jan_serve.journal.batches import Batch, BatchFacts, EndedLine, Line, Reply, State
from jan_serve.journal.journal import FILE_NAME, Journal

pytestmark = pytest.mark.anyio

GOOD = Reply(200, b"{}", "r")


class Form:
    """Fails where it is told to."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        if b"break check" in content:
            raise RuntimeError("check")
        return [Line("a", "/x", b"{}")]

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        if any(line.custom_id == "break end" for line in lines):
            raise RuntimeError("end")
        return b"x", b""


def no_form() -> Form:
    raise KeyError("no such form")


class Conditions:
    def __init__(self) -> None:
        self.paused: set[str | None] = set()

    def places(self, model: str | None) -> int:
        return 2

    def pause(self, model: str | None) -> str | None:
        return "not now" if model in self.paused else None


class Bench:
    """A runner. replies: what a model answers next, and the last one for ever."""

    def __init__(self, journal: Journal) -> None:
        self.background = Background(journal)
        self.conditions = Conditions()
        self.calls = Counter[str]()
        self.replies: Callable[[Line, int], Reply] = lambda line, number: GOOD
        self.runner = BatchRunner(self.background, self.call, self.conditions)
        self.table = self.runner.table
        self.runner.register("x", Form)

    async def call(self, batch: Batch, line: Line, transcript: Transcript) -> Reply:
        self.calls[line.custom_id] += 1
        return self.replies(line, self.calls[line.custom_id])

    async def add(
        self, name: str, *lines: str, model: str = "m", content: bytes | None = None, window_s: int = 1_000
    ) -> None:
        now = int(time.time())
        batch = Batch(
            id=name,
            owner="",
            dialect="x",
            state="in_progress" if content is None else "validating",
            created=now,
            expires=now + window_s,
            facts=BatchFacts(model=model),
        )
        await self.table.add(batch, content, [Line(each, "/x", b"{}") for each in lines])
        self.runner.wake()

    async def until(self, name: str, is_so: Callable[[Batch], bool]) -> Batch:
        async with asyncio.timeout(60):
            while True:
                batch = await self.table.find("", name)
                assert batch is not None
                if is_so(batch):
                    return batch
                await asyncio.sleep(0.005)

    async def ended(self, name: str) -> str:
        return (await self.until(name, lambda batch: batch.has_ended)).state


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr("jan_serve.journal.batch_runner._LONGEST_WAIT_S", 0.02)
    journal = Journal(tmp_path / FILE_NAME, 1 << 30)
    bench = Bench(journal)
    yield bench
    await bench.background.stop()
    await journal.close()


@pytest.mark.parametrize(
    "fields", [{"content": b"break check"}, {"content": b"x", "dialect": "none"}, {"lines": ["break end"]}]
)
async def test_a_batch_at_which_the_server_fails_ends_and_stops_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    if "dialect" in fields:
        bench.runner.register("x", no_form)
    await bench.add("one", *fields.get("lines", ()), content=fields.get("content"))
    assert await bench.ended("one") == "failed"
    assert "one failed" in caplog.text
    bench.runner.register("x", Form)
    await bench.add("two", "a")
    assert await bench.ended("two") == "completed"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), KeyError("a defect")]
)
async def test_whatever_ends_a_look_at_the_batches_they_are_looked_at_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    errors, look = [error], bench.table.open_batches

    async def open_batches() -> Sequence[Batch]:
        if errors:
            raise errors.pop()
        return await look()

    monkeypatch.setattr(bench.table, "open_batches", open_batches)
    await bench.add("one", "a")
    assert await bench.ended("one") == "completed"


async def test_a_lack_of_memory_is_no_fault_of_a_batch(bench: Bench) -> None:
    errors = [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.EMFILE, "Too many")]

    def form() -> Form:
        if errors:
            raise errors.pop()
        return Form()

    bench.runner.register("x", form)
    await bench.add("one", content=b"x")
    assert await bench.ended("one") == "completed"
    assert errors == []


@pytest.mark.parametrize("facts", [b"", b"\xff", b"[]", b'{"counts": 1}', b'{"times": {"a": "b"}}'])
async def test_a_batch_that_cannot_be_read_has_failed_and_stops_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, facts: bytes
) -> None:
    bench.conditions.paused.add("m")
    await bench.add("one", "a")
    await bench.add("ended", model="other")
    assert await bench.ended("ended") == "completed"
    await bench.background.journal.run(
        lambda db: db.execute("UPDATE batches SET facts = ?", (facts,)) and None
    )
    await bench.add("two", "b", model="other")
    assert await bench.ended("two") == "completed"
    assert "one in the journal cannot be read" in caplog.text
    kept = await bench.background.journal.run(
        lambda db: db.execute("SELECT facts, custom_id FROM batches LEFT JOIN lines ON batch = id WHERE id <> 'two'"
                              " ORDER BY id").fetchall()
    )  # fmt: skip
    assert kept == [(facts, None), (facts, "a")]
    for name in ("one", "ended"):
        batch = await bench.table.find("", name)
        assert batch is not None and batch.state == "failed"
        assert "cannot be read" in batch.facts.faults[0].message
        assert await bench.table.delete("", name)
    assert bench.calls == {"b": 1}


@pytest.mark.parametrize("status", [429, 503, 504, 529])
async def test_a_line_is_asked_again_for_as_long_as_nothing_is_said_of_it(bench: Bench, status: int) -> None:
    bench.replies = lambda line, number: GOOD if number > 12 else Reply(status, b"{}", "r")
    await bench.add("one", "a")
    assert await bench.ended("one") == "completed"
    assert bench.calls["a"] == 13


async def test_an_answer_that_the_journal_does_not_take_is_kept_and_not_computed_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, left = bench.table.answer, 9

    async def full(batch: Batch, number: int, reply: Reply) -> bool:
        nonlocal left
        left -= batch.id == "one"
        if left > 0 and batch.id == "one":
            raise InsufficientStorage("It is full.")
        return await store(batch, number, reply)

    monkeypatch.setattr(bench.table, "answer", full)
    await bench.add("one", "a", "b", "c")
    await bench.add("two", "d")
    await bench.until("one", lambda _: bench.runner.paused.get("one") == "It is full.")
    assert await bench.ended("two") == "completed"
    assert await bench.ended("one") == "completed"
    assert bench.calls == {"a": 1, "b": 1, "c": 1, "d": 1}


async def test_what_is_written_of_a_line_is_stored_before_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.journal.batch_runner._LOG_S", 0.001)
    stored: list[bytes] = []

    async def call(batch: Batch, line: Line, transcript: Transcript) -> Reply:
        transcript.begin("weights")
        for event in (b"one", b"two"):
            transcript.add(event)
            async with asyncio.timeout(60):
                while event not in (log := (await bench.table.open_lines(batch, (), 1))[0].log).events:
                    await asyncio.sleep(0.001)
            assert log.weights == "weights"
            stored.append(log.events)
        return GOOD

    monkeypatch.setattr(bench.runner, "_call", call)
    await bench.add("one", "a")
    assert await bench.ended("one") == "completed"
    assert stored == [b"\0\0\0\3one", b"\0\0\0\3one\0\0\0\3two"]
    assert await bench.background.journal.run(lambda db: db.execute("SELECT * FROM logs").fetchall()) == []


async def test_work_on_a_line_that_something_cancels_is_done_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.journal.batch_runner._LONGEST_WAIT_S", 0.001)

    def cancelled_once(line: Line, number: int) -> Reply:
        if number == 1:
            raise asyncio.CancelledError
        return GOOD

    bench.replies = cancelled_once
    await bench.add("one", "a", "b")
    assert await bench.ended("one") == "completed"
    assert bench.calls == {"a": 2, "b": 2}


async def test_a_batch_that_cannot_run_lets_the_next_one_run(bench: Bench) -> None:
    bench.conditions.paused.add("asleep")
    bench.replies = lambda line, number: Reply(503, b"{}", "r") if line.custom_id == "gone" else GOOD
    await bench.add("paused", "a", model="asleep")
    await bench.add("without its model", "gone")
    await bench.add("able", "b")
    assert await bench.ended("able") == "completed"
    await bench.until("paused", lambda _: bench.runner.paused.get("paused") == "not now")
    assert bench.calls["a"] == 0
    bench.conditions.paused.clear()
    bench.runner.wake()
    assert await bench.ended("paused") == "completed"
    gone = await bench.table.find("", "without its model")
    assert gone is not None
    assert (await bench.runner.cancel(gone)).state == "cancelling"
    assert await bench.ended("without its model") == "cancelled"


async def test_a_batch_that_has_just_ended_is_not_cancelled(bench: Bench) -> None:
    await bench.add("one", "a")
    before = await bench.table.find("", "one")
    assert before is not None
    await bench.ended("one")
    assert (await bench.runner.cancel(before)).state == "completed"


@pytest.mark.parametrize("window_s", [0, 1_000])
async def test_a_batch_whose_lines_the_journal_does_not_take_waits_until_it_expires(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, window_s: int
) -> None:
    began, left = bench.table.began, 5

    async def full(batch: Batch, lines: Sequence[Line]) -> None:
        nonlocal left
        left -= 1
        if left > 0 or not window_s:
            raise InsufficientStorage("It is full.")
        await began(batch, lines)

    monkeypatch.setattr(bench.table, "began", full)
    await bench.add("one", content=b"x", window_s=window_s)
    assert await bench.ended("one") == ("completed" if window_s else "expired")
