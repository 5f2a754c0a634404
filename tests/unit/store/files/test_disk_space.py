"""When a disk counts as full, and errors of disks in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from jan_serve.errors import InsufficientStorage, StoreError
from jan_serve.store.files import disk_space
from jan_serve.store.files.disk_space import check_room, storage_error

MB = 1 << 20


@pytest.mark.parametrize(
    ("total", "free", "wanted", "fits"),
    [
        (100_000 * MB, 1000 * MB, 744 * MB, True),
        (100_000 * MB, 1000 * MB, 744 * MB + 1, False),
        (1000 * MB, 100 * MB, 80 * MB, True),
        (1000 * MB, 100 * MB, 80 * MB + 1, False),
        (1000 * MB, 0, 0, False),
    ],
)
def test_some_room_is_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int, wanted: int, fits: bool
) -> None:
    asked: list[Path] = []

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(total=total, free=free)

    monkeypatch.setattr(disk_space.shutil, "disk_usage", disk_usage)
    if fits:
        check_room(tmp_path / "absent" / "deeper", wanted)
    else:
        with pytest.raises(InsufficientStorage, match="GB are free on the disk of"):
            check_room(tmp_path / "absent" / "deeper", wanted)
    assert asked == [tmp_path], "the nearest folder that exists"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (errno.ENOSPC, InsufficientStorage, "The disk is full"),
        (errno.EDQUOT, InsufficientStorage, "The disk is full"),
        (errno.EFBIG, InsufficientStorage, "The disk is full"),
        (errno.EACCES, StoreError, "Cannot write to /models: Permission denied."),
    ],
)
def test_errors(code: int, kind: type[StoreError], says: str) -> None:
    error = storage_error(OSError(code, os.strerror(code)), Path("/models"))
    assert type(error) is kind
    assert says in error.message
    assert "Cannot write to /models: odd." in storage_error(OSError("odd"), Path("/models")).message
