"""Files under way: claims, what writers leave, and what is swept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from jan_serve.store.hub.partial_downloads import PartialFolder

DIGEST = "ab" * 32
OTHER = "cd" * 32


def folder(models: Path) -> Path:
    return models / ".jan-serve" / "incoming"


def gone_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


@pytest.mark.skipif(os.name != "posix", reason="a process id may be reused at once elsewhere")
def test_the_data_of_a_killed_writer_is_claimed(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    mine = partials.claim(DIGEST)
    host = mine.token.partition("-")[0]
    orphan = folder(tmp_path) / f"{DIGEST}.{host}-{gone_pid()}-00000000.writing"
    orphan.write_bytes(b"left")
    alive = folder(tmp_path) / f"{OTHER}.{host}-{os.getppid()}-00000000.writing"
    alive.write_bytes(b"busy")
    stranger = folder(tmp_path) / f"{OTHER}.ffffffff-1-00000000.writing"
    stranger.write_bytes(b"elsewhere")
    assert partials.kept_bytes(DIGEST) == 4
    assert partials.claim(DIGEST).path.read_bytes() == b"left"
    assert partials.kept_bytes(OTHER) == 0
    assert partials.claim(OTHER).n_kept == 0
    os.utime(stranger, (1, 1))
    assert partials.claim(OTHER).n_kept == 9
    assert alive.read_bytes() == b"busy"


def test_sweep(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    assert partials.sweep() == 0
    busy = partials.claim(DIGEST)
    host = busy.token.partition("-")[0]
    orphan = folder(tmp_path) / f"{OTHER}.{host}-{gone_pid()}-00000000.writing"
    orphan.write_bytes(b"left")
    old = folder(tmp_path) / ("ef" * 32 + ".part")
    old.write_bytes(b"old")
    os.utime(old, (1, 1))
    temporary = tmp_path / ".jan-serve" / "index" / "x.json.0000.tmp"
    temporary.parent.mkdir()
    temporary.write_bytes(b"")
    os.utime(temporary, (1, 1))
    assert partials.sweep() == 2
    assert busy.path.exists()
    assert (folder(tmp_path) / f"{OTHER}.part").read_bytes() == b"left"
    assert not old.exists() and not temporary.exists()


def test_a_file_whose_digest_is_locked_is_not_swept(tmp_path: Path) -> None:
    """Its writer may be alive although no process has its id here: in another container, or hidden."""
    partials = PartialFolder(tmp_path)
    host = partials.claim(OTHER).token.partition("-")[0]
    writing = folder(tmp_path) / f"{DIGEST}.{host}-{gone_pid()}-00000000.writing"
    writing.write_bytes(b"busy")
    with PartialFolder(tmp_path).lock(DIGEST):
        partials.sweep()
        assert writing.read_bytes() == b"busy"
    partials.sweep()
    assert not writing.exists()
    assert (folder(tmp_path) / f"{DIGEST}.part").read_bytes() == b"busy"


def test_without_locks_nothing_of_a_writer_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partials = PartialFolder(tmp_path)
    host = partials.claim(OTHER).token.partition("-")[0]
    writing = folder(tmp_path) / f"{DIGEST}.{host}-{gone_pid()}-00000000.writing"
    writing.write_bytes(b"busy")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(filelock.FileLock, "acquire", fail)
    assert partials.sweep() == 0
    assert writing.read_bytes() == b"busy"
