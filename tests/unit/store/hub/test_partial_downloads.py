"""Files under way: claims, what writers leave, and what is swept."""

from __future__ import annotations

import os
from pathlib import Path

import filelock
import pytest

from jan_serve.store.hub.partial_downloads import PartialFolder

DIGEST = "ab" * 32
OTHER = "cd" * 32


def folder(models: Path) -> Path:
    return models / ".jan-serve" / "incoming"


def test_writers_never_share_a_file(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    first, second = partials.claim(DIGEST), partials.claim(DIGEST)
    assert first.path != second.path
    first.path.write_bytes(b"first")
    first.keep()
    assert partials.kept_bytes(DIGEST) == 5
    third = partials.claim(DIGEST)
    assert (third.n_kept, third.path.read_bytes()) == (5, b"first")
    assert partials.claim(DIGEST).n_kept == 0
    assert partials.kept_bytes(OTHER) == 0
    target = tmp_path / "m.gguf"
    target.write_bytes(b"old")
    third.place(target)
    assert target.read_bytes() == b"first"
    second.discard()
    assert not second.path.exists()


def test_a_lock_in_use_is_not_swept(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    file = folder(tmp_path) / f"{DIGEST}.lock"
    with PartialFolder(tmp_path).lock(DIGEST):
        os.utime(file, (1, 1))
        assert partials.sweep() == 0
        with pytest.raises(filelock.Timeout):
            partials.lock(DIGEST).acquire(timeout=0)
    file.touch()
    os.utime(file, (1, 1))
    partials.sweep()
    assert not file.exists()


def test_an_empty_file_is_not_kept(tmp_path: Path) -> None:
    PartialFolder(tmp_path).claim(DIGEST).keep()
    assert list(folder(tmp_path).iterdir()) == []


def test_the_lock_keeps_others_out(tmp_path: Path) -> None:
    partials = PartialFolder(tmp_path)
    with partials.lock(DIGEST), pytest.raises(filelock.Timeout):
        PartialFolder(tmp_path).lock(DIGEST).acquire(timeout=0)
    with partials.lock(DIGEST).acquire(timeout=0):
        pass
