"""A file has the old content or the new one, and nothing remains beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jan_serve.store.files.small_files import write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_creates_folders_and_replaces_content(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for content in (b"one", b"", b"two\r\n"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert names(path.parent) == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o100640])
def test_the_permissions_are_set(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch(0o666)
    write_atomically(path, b"x", mode=mode)
    assert path.stat().st_mode & 0o7777 == mode & 0o7777


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"old", b"new", False)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("broken disk")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="broken disk"):
        write_atomically(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])
