"""Folders of live processes stay, those of dead ones go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jan_serve.store.files.process_folder import ProcessFolder


def folders(root: Path) -> set[Path]:
    return {path for path in root.iterdir() if path.is_dir()}


def test_a_folder_is_made_once_and_deleted_on_close(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = ProcessFolder(root)
    folder.close()
    assert not root.exists(), "not before its first use"
    first = folder.path()
    assert folder.path() == first and folders(root) == {first}
    if sys.platform != "win32":
        assert first.stat().st_mode & 0o777 == 0o700
    (first / "file").write_bytes(b"x")
    folder.close()
    folder.close()
    assert folders(root) == set()
    assert folder.path() != first
    folder.close()


def test_two_users_of_one_root_have_folders_of_their_own(tmp_path: Path) -> None:
    one, other = ProcessFolder(tmp_path), ProcessFolder(tmp_path)
    paths = {one.path(), other.path()}
    assert folders(tmp_path) == paths and len(paths) == 2
    one.close()
    assert folders(tmp_path) == {other.path()}
    other.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_and_files_in_the_root_are_not_touched(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").touch()
    (root / "link").symlink_to(outside)
    (root / "note").touch()
    folder = ProcessFolder(root)
    folder.path()
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (root / "link").is_symlink() and (root / "note").exists()
    folder.close()
