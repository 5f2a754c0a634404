"""Prompt states on disk are deleted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.control.control_plane import delete_states


def test_states_of_every_worker_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two" / "deeper").mkdir(parents=True)
    deleted = ["one/a.state", "one/b.partial", "two/c.state"]
    kept = ["one/a.txt", "two/deeper/a.state", "a.state"]
    for name in (*deleted, *kept):
        (tmp_path / name).write_bytes(b"x")
    delete_states(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
    delete_states(tmp_path / "absent")


def test_a_file_in_use_remains_and_the_others_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "w" / f"{name}.state").write_bytes(b"x")
    unlink = Path.unlink

    def refuse_one(path: Path, missing_ok: bool = False) -> None:
        if path.name == "b.state":
            raise PermissionError("in use")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_one)
    delete_states(tmp_path)
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["b.state"]
