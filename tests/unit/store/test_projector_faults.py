"""What loads showed about projectors, for lists of this process and of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.store.index import STATE_FOLDER
from jan_serve.store.projector_faults import ProjectorFaults


@pytest.fixture
def projector(tmp_path: Path) -> Path:
    path = tmp_path / "mmproj-a.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_fault_is_known_to_other_processes_until_a_load_works(tmp_path: Path, projector: Path) -> None:
    mine, other = ProjectorFaults(tmp_path), ProjectorFaults(tmp_path)
    assert other.reason(projector) == ""
    mine.note(projector, "damaged")
    assert (mine.reason(projector), other.reason(projector)) == ("damaged", "damaged")
    assert other.reason(projector.with_name("mmproj-b.gguf")) == ""
    other.note(projector, "")
    assert (mine.reason(projector), other.reason(projector)) == ("", "")


def test_another_file_has_no_fault(tmp_path: Path, projector: Path) -> None:
    faults = ProjectorFaults(tmp_path)
    faults.note(projector, "damaged")
    os.utime(projector, ns=(1, 1))
    assert faults.reason(projector) == ""
    projector.unlink()
    assert faults.reason(projector) == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 1}', b"\xff"])
def test_a_damaged_record_says_nothing(tmp_path: Path, projector: Path, content: bytes) -> None:
    folder = tmp_path / STATE_FOLDER
    folder.mkdir()
    (folder / "projector-faults.json").write_bytes(content)
    faults = ProjectorFaults(tmp_path)
    assert faults.reason(projector) == ""
    faults.note(projector, "damaged")
    assert ProjectorFaults(tmp_path).reason(projector) == "damaged"


def test_without_write_access_this_process_knows(tmp_path: Path, projector: Path) -> None:
    (tmp_path / STATE_FOLDER).write_bytes(b"a file where the folder would be")
    faults = ProjectorFaults(tmp_path)
    faults.note(projector, "damaged")
    assert faults.reason(projector) == "damaged"


def test_a_load_that_works_writes_nothing(tmp_path: Path, projector: Path) -> None:
    ProjectorFaults(tmp_path).note(projector, "")
    assert not (tmp_path / STATE_FOLDER).exists()
