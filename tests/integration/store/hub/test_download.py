"""Downloads while the network, the hub or the disk misbehaves."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import (
    DigestMismatch,
    HubUnavailable,
    InsufficientStorage,
    InvalidModel,
    StoreError,
)
from jan_serve.store.hub.download import Download, PartialFolder
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, REPO, Bench, model_bytes
from tests.support.processes import until
from tests.support.servers.fake_hub import Fault

pytestmark = pytest.mark.anyio


async def test_a_pull_brings_the_file_and_its_record(bench: Bench) -> None:
    record = await bench.pull()
    assert bench.file().read_bytes() == bench.content()
    assert record.name == f"{REPO}/Tiny-Q8_0"
    assert record.files[0].sha256 == hashlib.sha256(bench.content()).hexdigest()
    assert (record.source.kind, record.source.name) == ("hub", REPO)
    assert record.facts is not None and (record.facts.architecture, record.facts.quantisation) == (
        "llama",
        "Q8_0",
    )
    assert bench.seen.counts[-1] == len(bench.content())
    assert bench.incoming() == []
    assert not (bench.models / REPO / "README.md").exists()


async def test_a_second_pull_transfers_nothing(bench: Bench) -> None:
    await bench.pull()
    await bench.pull()
    assert len(bench.hub.asked("/resolve/")) == 1
    assert len(bench.hub.asked("/api/models/")) == 2


async def test_a_newer_commit_replaces_the_file_and_a_revision_can_be_named(bench: Bench) -> None:
    old = bench.content()
    await bench.pull()
    repo = bench.hub.repos[REPO]
    repo.files[FILE], repo.commit, repo.revisions = model_bytes(fill=9), "f" * 40, ("main", "v1.0")
    record = await bench.pull()
    assert bench.file().read_bytes() == bench.content() != old
    assert record.source.revision == "f" * 40
    plan = await bench.puller().plan(REPO, revision="v1.0")
    assert bench.hub.asked("/revision/v1.0") and plan.commit == "f" * 40


async def test_a_cut_is_resumed_where_it_was(bench: Bench) -> None:
    bench.hub.file_faults.append(Fault(cut_at=2 << 20))
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()
    first, second = bench.hub.asked("/resolve/")
    assert "range" not in first.headers
    assert second.headers["range"] == f"bytes={2 << 20}-"
    assert any("trying again" in note for note in bench.seen.notes)


async def test_many_cuts_are_no_reason_to_stop_while_there_is_progress(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(cut_at=300_000)] * 9)
    await bench.pull()
    assert len(bench.hub.asked("/resolve/")) == 10
    assert bench.file().read_bytes() == bench.content()


async def test_a_hub_without_ranges_starts_over_and_gives_up_in_the_end(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(cut_at=1 << 20, no_range=True)] * 2)
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()
    shutil.rmtree(bench.models)
    bench.hub.file_faults.extend([Fault(cut_at=1 << 20, no_range=True)] * 9)
    with pytest.raises(HubUnavailable, match=r"failed 3 times in a row; the last time: .*(closed|ended)"):
        await bench.pull()
    assert not bench.file().exists()


async def test_a_later_run_goes_on(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(cut_at=1 << 20)] + [Fault(status=503)] * 3)
    with pytest.raises(HubUnavailable, match="503"):
        await bench.pull()
    assert [path.suffix for path in bench.incoming()] == [".part"]
    await asyncio.wait_for(bench.pull(), 120)  # the hub stays silent for longer
    assert bench.hub.asked("/resolve/")[-1].headers["range"] == f"bytes={1 << 20}-"
    assert bench.file().read_bytes() == bench.content()
    assert bench.incoming() == []


async def test_damaged_kept_data_restarts_the_download(bench: Bench) -> None:
    bench.hub.file_faults.extend([Fault(cut_at=1 << 20)] + [Fault(status=503)] * 3)
    with pytest.raises(HubUnavailable):
        await bench.pull()
    (kept,) = bench.incoming()
    damaged = bytearray(kept.read_bytes())
    damaged[77] ^= 1
    kept.write_bytes(damaged)
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()
    assert any("beginning again" in note for note in bench.seen.notes)


@pytest.mark.parametrize(
    ("fault", "got"),
    [
        (Fault(flip_at=1 << 20), "SHA-256 [0-9a-f]{64}, got SHA-256 [0-9a-f]{64}"),
        (
            Fault(body=b"<html>Please log in</html>", headers={"Content-Type": "text/html"}),
            "got 26 bytes .*text/html",
        ),
        (Fault(body=b"<html>" * 9, headers={"Content-Type": "text/html"}, chunked=True), "text/html"),
        (Fault(body=b""), "got 0 bytes"),
        (Fault(body=b"GGUF" + b"\0" * (4 << 20)), "got 4194308 bytes"),
        (Fault(body=b"x" * (4 << 20), chunked=True), "got more than that"),
        (Fault(length=1000), "got 1000 bytes"),
    ],
    ids=[
        "one bit",
        "login page",
        "login page in chunks",
        "empty",
        "too long",
        "too long in chunks",
        "wrong length",
    ],
)
async def test_other_bytes_never_become_a_model(bench: Bench, fault: Fault, got: str) -> None:
    bench.hub.file_faults.append(fault)
    with pytest.raises(DigestMismatch, match=got):
        await bench.pull()
    assert not bench.file().exists()
    assert bench.incoming() == []
    assert ModelResolver(bench.models).entries() == ()
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()


async def test_a_file_that_is_not_gguf_is_removed_despite_its_digest(bench: Bench) -> None:
    bench.hub.repos[REPO].files[FILE] = b"PK\x03\x04" + b"\0" * 4096
    with pytest.raises(InvalidModel, match=r"Tiny-Q8_0\.gguf is not a valid GGUF file"):
        await bench.pull()
    assert not bench.file().exists()
    assert bench.incoming() == []


async def test_a_stall_ends_after_the_time_to_read(bench: Bench) -> None:
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    await asyncio.wait_for(bench.pull(), 120)  # the hub stays silent for longer
    assert bench.hub.asked("/resolve/")[-1].headers["range"] == f"bytes={1 << 20}-"
    assert bench.file().read_bytes() == bench.content()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_temporary_statuses_are_retried(bench: Bench, status: int) -> None:
    bench.hub.listing_faults.append(Fault(status=status))
    bench.hub.file_faults.extend([Fault(status=status)] * 2)
    await bench.pull()
    assert len(bench.hub.asked("/resolve/")) == 3


async def test_cancel_waits_for_no_data_and_keeps_what_was_received(bench: Bench) -> None:
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    retry_policy = RetryPolicy(read_s=600)
    task = asyncio.ensure_future(bench.pull(puller=bench.puller(retry_policy=retry_policy)))
    await asyncio.to_thread(bench.hub.stalled.wait, 60)
    while not bench.seen.counts or bench.seen.counts[-1] == 0:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    (kept,) = bench.incoming(".part")
    assert kept.stat().st_size == 1 << 20
    assert not bench.file().exists()


async def test_cancel_while_the_list_stalls(bench: Bench) -> None:
    bench.hub.listing_faults.append(Fault(stall_at=0))
    task = asyncio.ensure_future(bench.pull(puller=bench.puller(retry_policy=RetryPolicy(read_s=600))))
    await asyncio.to_thread(bench.hub.stalled.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)


async def test_no_room_is_reported_before_anything_is_downloaded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearly_full(_: Path) -> Any:
        return shutil._ntuple_diskusage(100 << 20, 96 << 20, 4 << 20)  # type: ignore[attr-defined]

    monkeypatch.setattr("jan_serve.store.files.shutil.disk_usage", nearly_full)
    with pytest.raises(InsufficientStorage, match=r"needs 0\.00 GB .* only 0\.00 GB are free"):
        await bench.pull()
    assert bench.hub.asked("/resolve/") == []


class FullDisk:
    """A file on which writes fail after some bytes."""

    def __init__(self, file: Any, room: int, number: int) -> None:
        self._file = file
        self._room = room
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        """As a file's, while there is room."""
        if self._file.tell() + len(data) > self._room:
            raise OSError(self._number, "no room")
        return self._file.write(data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
async def test_a_disk_that_fills_up_leaves_no_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    other = bench.models / "other.gguf"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"GGUF")
    real_open = Path.open

    def open_full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = real_open(self, mode, *args, **kwargs)
        return FullDisk(file, 1 << 20, number) if self.suffix == ".part" else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_full)
        with pytest.raises(InsufficientStorage, match="disk is full"):
            await bench.pull()
    assert bench.incoming() == []
    assert other.read_bytes() == b"GGUF"
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()


async def test_a_folder_that_cannot_be_written(bench: Bench) -> None:
    bench.models.parent.joinpath("models").write_text("a file is in the way")
    with pytest.raises(StoreError, match="Cannot write to"):
        await bench.pull()


@pytest.mark.parametrize("name", ["mödels ünd 模型", "with spaces", "a'b"])
async def test_folders_with_unusual_names(bench: Bench, tmp_path: Path, name: str) -> None:
    bench.models = tmp_path / name
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()
    assert [entry.name for entry in ModelResolver(bench.models).entries()] == [f"{REPO}/Tiny-Q8_0"]


async def test_one_of_two_leaves_and_the_other_gets_the_file(bench: Bench) -> None:
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    puller = bench.puller(retry_policy=RetryPolicy(read_s=600))
    leaving = asyncio.ensure_future(bench.pull(puller=puller))
    await asyncio.to_thread(bench.hub.stalled.wait, 60)
    staying = asyncio.ensure_future(bench.pull(puller=puller))
    while len(bench.hub.asked("/api/models/")) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    bench.hub.released.set()
    await staying
    assert bench.file().read_bytes() == bench.content()


async def test_writers_with_nothing_in_common_do_not_disturb_each_other(bench: Bench) -> None:
    """Eight pullers of their own stand for eight processes."""
    await asyncio.gather(*(bench.pull(puller=bench.puller()) for _ in range(8)))
    assert bench.file().read_bytes() == bench.content()
    assert bench.incoming() == []
    assert len(bench.hub.asked("/resolve/")) == 1


async def test_one_that_waits_sees_the_bytes_of_the_running_transfer(bench: Bench) -> None:
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    first = asyncio.ensure_future(bench.pull(puller=bench.puller(retry_policy=RetryPolicy(read_s=600))))
    await asyncio.to_thread(bench.hub.stalled.wait, 60)
    waiting = Bench(bench.hub, bench.models)
    second = asyncio.ensure_future(waiting.pull())
    await until(lambda: (1 << 20) in waiting.seen.counts)
    bench.hub.released.set()
    await asyncio.gather(first, second)
    assert waiting.seen.counts[-1] == len(bench.content())


async def test_bytes_of_another_writer_never_become_a_model(bench: Bench) -> None:
    """Locks do nothing on some shared folders."""
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    pull = asyncio.ensure_future(bench.pull(puller=bench.puller(retry_policy=RetryPolicy(read_s=600))))
    await asyncio.to_thread(bench.hub.stalled.wait, 60)
    await until(lambda: bool(bench.seen.counts and bench.seen.counts[-1]))
    (partial,) = bench.incoming()
    with partial.open("ab") as file:
        file.write(b"other")
    bench.hub.released.set()
    with pytest.raises(StoreError, match="another program writes the same file"):
        await pull
    await bench.pull()
    assert bench.file().read_bytes() == bench.content()


def test_old_files_are_swept_and_locks_in_use_are_not(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    file = Download("", "m.gguf", 1, "ab" * 32, tmp_path / "m.gguf")
    (held, free) = partials.locks(file)
    folder = tmp_path / ".jan-serve" / "incoming"
    names = {f"{'ab' * 32}.part", f"{'cd' * 32}.part", Path(free.lock_file).name, Path(held.lock_file).name}
    for name in names:
        (folder / name).touch()
    (tmp_path / ".jan-serve" / "index").mkdir()
    (tmp_path / ".jan-serve" / "index" / "x.json.0.tmp").touch()
    with held:
        for path in (*folder.iterdir(), tmp_path / ".jan-serve" / "index" / "x.json.0.tmp"):
            os.utime(path, (1, 1))
        (folder / f"{'ab' * 32}.part").touch()
        partials.sweep()
        left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
        assert left == {f"{'ab' * 32}.part", Path(held.lock_file).name}


async def test_split_models_and_projectors_come_whole(bench: Bench) -> None:
    from tests.unit.store.gguf_builder import GgufBytes, uint_key

    def part(number: int) -> bytes:
        keys = [uint_key("split.no", number), uint_key("split.count", 2)]
        return GgufBytes(keys=keys).build()

    names = [f"Q4_K_M/Big-Q4_K_M-0000{n}-of-00002.gguf" for n in (1, 2)]
    files = {names[0]: part(0), names[1]: part(1), "mmproj-Big-f16.gguf": model_bytes(1000)}
    files |= {"Big-Q8_0-00001-of-00002.gguf": part(0), "imatrix.gguf": model_bytes(1000)}
    bench.hub.repos["org/Big"] = type(bench.hub.repos[REPO])(files)
    record = await bench.pull("org/Big:Q4_K_M")
    assert record.name == "org/Big/Q4_K_M/Big-Q4_K_M"
    assert [Path(file.path).name for file in record.files] == [Path(name).name for name in names]
    assert record.projector is not None and record.projector.path == "org/Big/mmproj-Big-f16.gguf"
    order = [asked.path.rpartition("/")[2] for asked in bench.hub.asked("/resolve/")]
    assert order[-1] == "Big-Q4_K_M-00001-of-00002.gguf"
    resolver = ModelResolver(bench.models)
    assert [entry.name for entry in resolver.entries()] == ["org/Big/Q4_K_M/Big-Q4_K_M"]


async def test_the_same_bytes_in_another_repository_are_linked(bench: Bench) -> None:
    bench.hub.repos["else/Copy"] = type(bench.hub.repos[REPO])({"Other-Q8_0.gguf": bench.content()})
    await bench.pull()
    await bench.pull("else/Copy")
    assert len(bench.hub.asked("/resolve/")) == 1
    assert bench.file("Other-Q8_0.gguf", "else/Copy").samefile(bench.file())
