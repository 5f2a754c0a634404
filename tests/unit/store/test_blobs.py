"""Uploads, and SHA-256 of files in threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest, StoreError, Unavailable
from jan_serve.store.blobs import MAX_UPLOADS, Blobs, digest_of, file_matches, hash_bytes, in_thread
from jan_serve.store.index import ModelIndex
from tests.unit.store.gguf_builder import GgufBytes

pytestmark = pytest.mark.anyio

CONTENT = GgufBytes().build()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path, ModelIndex(tmp_path))


async def pieces(
    content: bytes = CONTENT, size: int = 100, error: Exception | None = None
) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]
    if error is not None:
        raise error


def kept(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".jan-serve" / "blobs"))


async def test_an_upload_is_kept_once_its_digest_is_right(blobs: Blobs, tmp_path: Path) -> None:
    assert blobs.path_of(SHA256) is None
    with pytest.raises(InvalidRequest, match="digest mismatch"):
        await blobs.receive(SHA256, 0, pieces(CONTENT[1:]))
    with pytest.raises(EOFError):
        await blobs.receive(SHA256, 0, pieces(error=EOFError("gone")))
    assert kept(tmp_path) == []
    await blobs.receive(SHA256, len(CONTENT), pieces())
    path = blobs.path_of(SHA256)
    assert path is not None
    assert path.read_bytes() == CONTENT
    assert kept(tmp_path) == [f"sha256-{SHA256}"]


async def test_there_must_be_room(blobs: Blobs) -> None:
    with pytest.raises(InsufficientStorage):
        await blobs.receive(SHA256, 1 << 60, pieces())


async def test_uploads_that_nobody_used_are_deleted_after_a_day(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.receive(SHA256, 0, pieces())
    path = blobs.path_of(SHA256)
    assert path is not None
    os.utime(path, (1, 1))
    other = b"other"
    await blobs.receive(hashlib.sha256(other).hexdigest(), 0, pieces(other))
    assert blobs.path_of(SHA256) is None
    assert len(kept(tmp_path)) == 1


@dataclass
class Disk:
    """A disk of this size that holds nothing but the uploads."""

    folder: Path
    total: int

    def usage(self, path: Path) -> SimpleNamespace:
        used = sum(file.stat().st_size for file in (self.folder / ".jan-serve" / "blobs").glob("*"))
        return SimpleNamespace(total=self.total, free=self.total - used)


MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path, 60 * MIB)
    monkeypatch.setattr("jan_serve.store.files.shutil", SimpleNamespace(disk_usage=disk.usage))
    return disk


@pytest.mark.parametrize("announced", [0, 1, 2 * MIB])
async def test_an_upload_longer_than_it_said_leaves_the_reserve(
    blobs: Blobs, tmp_path: Path, disk: Disk, announced: int
) -> None:
    content = bytes(70 * MIB)
    with pytest.raises(InsufficientStorage):
        await blobs.receive(SHA256, announced, pieces(content, MIB))
    assert kept(tmp_path) == []
    for number in range(9):
        content = bytes([number]) * (8 * MIB)
        with contextlib.suppress(InsufficientStorage):
            await blobs.receive(hashlib.sha256(content).hexdigest(), announced, pieces(content, MIB))
    assert disk.usage(tmp_path).free >= disk.total // 50
    assert len(kept(tmp_path)) == 7


async def test_what_is_announced_is_not_given_to_others(blobs: Blobs, disk: Disk) -> None:
    announced = bytes(40 * MIB)
    ready, go = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield announced[:MIB]
        ready.set()
        await go.wait()
        yield announced[MIB:]

    first = asyncio.create_task(blobs.receive(hashlib.sha256(announced).hexdigest(), 40 * MIB, slowly()))
    await ready.wait()
    other = bytes(30 * MIB)
    for n_bytes in (0, len(other)):
        with pytest.raises(InsufficientStorage):
            await blobs.receive(hashlib.sha256(other).hexdigest(), n_bytes, pieces(other, MIB))
    go.set()
    await first


async def test_old_uploads_make_room(blobs: Blobs, tmp_path: Path, disk: Disk) -> None:
    digests: list[str] = []
    for number, age_s in enumerate((700, 5_000, 100)):
        content = bytes([number]) * (15 * MIB)
        digests.append(hashlib.sha256(content).hexdigest())
        await blobs.receive(digests[-1], 0, pieces(content, MIB))
        path = blobs.path_of(digests[-1])
        assert path is not None
        changed_s = time.time() - age_s
        os.utime(path, (changed_s, changed_s))
    more = bytes(20 * MIB)
    await blobs.receive(hashlib.sha256(more).hexdigest(), 0, pieces(more, MIB))
    assert [blobs.path_of(digest) is not None for digest in digests] == [True, False, True]
    with pytest.raises(InsufficientStorage):
        await blobs.receive(SHA256, 0, pieces(bytes(50 * MIB), MIB))
    assert blobs.path_of(digests[2]) is not None, "it is too new to be nobody's"


async def test_rests_of_uploads_end(blobs: Blobs, tmp_path: Path) -> None:
    folder = tmp_path / ".jan-serve" / "blobs"
    folder.mkdir(parents=True)
    for name, age_s in (("a.tmp", 700), ("b.tmp", 10)):
        (folder / name).write_bytes(b"x")
        changed_s = time.time() - age_s
        os.utime(folder / name, (changed_s, changed_s))
    await blobs.receive(SHA256, 0, pieces())
    assert kept(tmp_path) == ["b.tmp", f"sha256-{SHA256}"]


async def test_uploads_at_once_are_few(blobs: Blobs, tmp_path: Path) -> None:
    go = asyncio.Event()

    async def waiting() -> AsyncIterator[bytes]:
        yield b"x"
        await go.wait()
        raise EOFError

    tasks = [asyncio.create_task(blobs.receive(SHA256, 0, waiting())) for _ in range(MAX_UPLOADS)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="send this one later"):
        await blobs.receive(SHA256, 0, pieces())
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    await blobs.receive(SHA256, 0, pieces())
    assert kept(tmp_path) == [f"sha256-{SHA256}"]


async def test_a_model_takes_the_file(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.receive(SHA256, 0, pieces())
    record = blobs.make_model(SHA256, "ns/mine:1b")
    assert (record.name, record.files[0].sha256) == ("created/ns/mine-1b", SHA256)
    file = tmp_path / "created" / "ns" / "mine-1b.gguf"
    assert file.read_bytes() == CONTENT
    assert kept(tmp_path) == []
    # The digest is known still: the file is the model's.
    assert blobs.path_of(SHA256) == file
    with pytest.raises(InvalidRequest, match="already"):
        blobs.make_model(SHA256, "ns/mine:1b")
    file.write_bytes(b"changed")
    assert blobs.path_of(SHA256) is None


async def test_what_is_no_model(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="was not uploaded"):
        blobs.make_model(SHA256, "x")
    junk = hashlib.sha256(b"junk").hexdigest()
    await blobs.receive(junk, 0, pieces(b"junk"))
    with pytest.raises(InvalidModel):
        blobs.make_model(junk, "x")
    await blobs.receive(SHA256, 0, pieces())
    for name in ("../x", "/x", "a//b", ".hidden", "con", "a\0b", "x" * 300):
        with pytest.raises(InvalidRequest):
            blobs.make_model(SHA256, name)
    assert not (tmp_path / "created").exists()


@pytest.fixture(params=["hard links", "no hard links"])
def has_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the disk has hard links: exFAT and some network shares have none."""
    if request.param == "hard links":
        return True
    monkeypatch.setattr(os, "link", _no_links)
    return False


def _any_adapter(*_: object) -> None:
    """In place of `check_adapter`."""


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


async def test_a_model_is_made_where_files_cannot_be_linked(
    blobs: Blobs, tmp_path: Path, has_links: bool
) -> None:
    await blobs.receive(SHA256, 0, pieces())
    record = blobs.make_model(SHA256, "mine")
    file = tmp_path / "created" / "mine.gguf"
    assert file.read_bytes() == CONTENT
    assert record.describes(file.stat().st_size, file.stat().st_mtime_ns)
    assert kept(tmp_path) == []
    await blobs.receive(SHA256, 0, pieces())
    file.write_bytes(b"the user's")
    with pytest.raises(InvalidRequest, match="already"):
        blobs.make_model(SHA256, "mine")
    assert file.read_bytes() == b"the user's"
    assert kept(tmp_path) == [f"sha256-{SHA256}"]


async def test_the_file_of_a_model_is_linked_and_never_moved(
    blobs: Blobs, tmp_path: Path, has_links: bool
) -> None:
    await blobs.receive(SHA256, 0, pieces())
    blobs.make_model(SHA256, "first")
    if has_links:
        blobs.make_model(SHA256, "second")
    else:
        with pytest.raises(StoreError, match="Operation not permitted"):
            blobs.make_model(SHA256, "second")
    assert (tmp_path / "created" / "first.gguf").read_bytes() == CONTENT
    assert (tmp_path / "created" / "second.gguf").exists() == has_links


async def test_a_record_that_cannot_be_written_leaves_the_upload_and_no_model(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    await blobs.receive(SHA256, 0, pieces())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(ModelIndex, "put", full)
        with pytest.raises(InsufficientStorage):
            blobs.make_model(SHA256, "mine")
    assert kept(tmp_path) == [f"sha256-{SHA256}"]
    assert not (tmp_path / "created" / "mine.gguf").exists()
    blobs.make_model(SHA256, "mine")
    assert (tmp_path / "created" / "mine.gguf").read_bytes() == CONTENT


async def test_an_upload_that_cannot_be_moved_leaves_no_empty_file(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blobs.receive(SHA256, 0, pieces())
    monkeypatch.setattr(os, "link", _no_links)
    monkeypatch.setattr(os, "replace", _no_links)
    with pytest.raises(StoreError, match="Operation not permitted"):
        blobs.make_model(SHA256, "mine")
    assert os.listdir(tmp_path / "created") == []
    assert kept(tmp_path) == [f"sha256-{SHA256}"]


async def test_an_adapter_is_kept_where_files_cannot_be_linked(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    monkeypatch.setattr("jan_serve.store.blobs.check_adapter", _any_adapter)
    target = tmp_path / ".jan-serve" / "adapters" / "a.gguf"
    await blobs.receive(SHA256, 0, pieces())
    for _ in range(2):
        blobs.keep_adapter(SHA256, target, "v", "llama")
        assert target.read_bytes() == CONTENT
        assert kept(tmp_path) == []


async def test_an_upload_is_on_the_disk_before_it_has_its_name(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss, what has the name of an upload is whole."""
    flush, replace = os.fsync, os.replace
    flushed: dict[int, int] = {}
    lengths: list[int | None] = []

    def watched_flush(descriptor: int) -> None:
        flush(descriptor)
        status = os.fstat(descriptor)
        flushed[status.st_ino] = status.st_size

    def watched_replace(source: Any, target: Any) -> None:
        lengths.append(flushed.get(os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_flush)
    monkeypatch.setattr(os, "replace", watched_replace)
    await blobs.receive(SHA256, 0, pieces())
    assert lengths == [len(CONTENT)]
    if os.name == "posix":
        assert (tmp_path / ".jan-serve" / "blobs").stat().st_ino in flushed


def test_digests() -> None:
    assert digest_of(f"sha256:{SHA256}") == digest_of(f"sha256-{SHA256}") == SHA256
    for text in (
        SHA256,
        f"sha256:{SHA256.upper()}",
        "sha256:",
        "sha256:../../etc/passwd",
        f"md5:{SHA256}",
        f"sha256:{SHA256}\n",
    ):
        with pytest.raises(InvalidRequest):
            digest_of(text)


WEIGHTS = b"weights"
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(WEIGHTS)
    return path


async def test_a_file_matches_its_size_and_digest(file: Path) -> None:
    assert await file_matches(file, len(WEIGHTS), DIGEST)
    assert not await file_matches(file, len(WEIGHTS), "0" * 64)
    assert not await file_matches(file, len(WEIGHTS) + 1, DIGEST)
    assert not await file_matches(file.with_name("absent"), len(WEIGHTS), DIGEST)
    assert not await file_matches(file.parent, file.parent.stat().st_size, DIGEST)


async def test_a_part_of_a_file_in_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.store.blobs._HASH_STEP_BYTES", 3)
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    blocks: list[bytes] = []
    with path.open("rb") as open_file:
        await hash_bytes(open_file, blocks.append, 7)
        assert blocks == [b"012", b"345", b"6"]
        assert open_file.read() == b"789"


async def test_a_file_that_becomes_shorter_is_an_error(file: Path) -> None:
    with file.open("rb") as open_file, pytest.raises(OSError, match="became shorter"):
        await hash_bytes(open_file, lambda block: None, len(WEIGHTS) + 1)


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
