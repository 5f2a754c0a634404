"""Digests of files, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path

import pytest

from jan_serve.store.files.file_hash import file_matches, hash_bytes, in_thread

pytestmark = pytest.mark.anyio

CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    return path


async def test_a_file_matches_its_size_and_digest(file: Path) -> None:
    assert await file_matches(file, len(CONTENT), DIGEST)
    assert not await file_matches(file, len(CONTENT), "0" * 64)
    assert not await file_matches(file, len(CONTENT) + 1, DIGEST)
    assert not await file_matches(file.with_name("absent"), len(CONTENT), DIGEST)
    assert not await file_matches(file.parent, file.parent.stat().st_size, DIGEST)


async def test_a_part_of_a_file_in_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.store.files.file_hash._HASH_STEP_BYTES", 3)
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    blocks: list[bytes] = []
    with path.open("rb") as open_file:
        await hash_bytes(open_file, blocks.append, 7)
        assert blocks == [b"012", b"345", b"6"]
        assert open_file.read() == b"789"


async def test_a_file_that_becomes_shorter_is_an_error(file: Path) -> None:
    with file.open("rb") as open_file, pytest.raises(OSError, match="became shorter"):
        await hash_bytes(open_file, lambda block: None, len(CONTENT) + 1)


async def test_a_cancelled_task_waits_for_its_thread() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(30)
        ended.set()

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_an_error_of_the_thread_is_raised() -> None:
    def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await in_thread(fail)
