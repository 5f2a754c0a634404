"""What `up` leaves for `status` and `down`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from jan_serve.cluster.cluster_file import ClusterFile, Replicas
from jan_serve.cluster.head import (
    ClusterRecord,
    RayHead,
    forget_record,
    read_record,
    record_file,
    write_record,
)
from jan_serve.errors import StoreError

RECORD = ClusterRecord(
    "10.0.0.2:6379",
    ClusterFile("http://10.0.0.2:8000", "KEY", replicas=Replicas(max=3), serve={"n_ctx": 4096}),
    RayHead(12, 1.5),
)


def test_it_comes_back_and_is_for_this_user_only(tmp_path: Path) -> None:
    path = record_file(tmp_path / "data")
    assert read_record(path) is None
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    forget_record(path)
    forget_record(path)
    assert read_record(path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"address": 5}', b"\xff", b'{"x":' + b"[" * 5_000])
def test_a_damaged_one_is_named(tmp_path: Path, content: bytes) -> None:
    path = record_file(tmp_path)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        read_record(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be"):
        write_record(record_file(tmp_path / "file"), RECORD)
