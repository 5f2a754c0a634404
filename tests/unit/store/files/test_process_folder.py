"""Folders of live processes stay, those of dead ones go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jan_serve.store.files.process_folder import ProcessFolder

LIVES = """
import sys
from pathlib import Path
from jan_serve.store.files.process_folder import ProcessFolder
folder = ProcessFolder(Path(sys.argv[1]))
print(folder.path(), flush=True)
sys.stdin.read()
"""


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


def test_a_dead_process_leaves_nothing_and_a_live_one_keeps_its_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIVES, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        ours = ProcessFolder(tmp_path)
        assert {theirs, ours.path()} == folders(tmp_path)
        ours.close()
        process.kill()
        process.wait(60)
        assert theirs.is_dir()
        assert folders(tmp_path) == {theirs}
        again = ProcessFolder(tmp_path)
        assert {again.path()} == folders(tmp_path)
        again.close()


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
