"""Updates: parts are collected, checked and merged; nothing of them stays behind."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jan_serve.store.gguf.weight_update import WeightUpdate
from tests.support.deadline import deadline
from tests.unit.store.gguf_builder import F32, GgufBytes, Tensor

NORM = Tensor("blk.0.norm.weight", (5,), F32, struct.pack("<5f", 1, 2, 3, 4, 5))
EMBEDDING = Tensor("token_embd.weight", (32, 3), F32, bytes(384))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.gguf"
    path.write_bytes(GgufBytes(tensors=(NORM, EMBEDDING)).build())
    return path


def part(*tensors: Tensor, **fields: Any) -> bytes:
    return GgufBytes(tensors=tensors, **fields).build()


def test_weights_of_a_process_that_lives_stay(base: Path, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from jan_serve.store.files.process_folder import ProcessFolder;"
        "own = ProcessFolder(pathlib.Path(sys.argv[1])); folder = own.path();"
        "(folder / 'updated-1.gguf').touch(); print(folder, flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "updates")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None
        with deadline(other):
            served = Path(other.stdout.readline().strip()) / "updated-1.gguf"
        WeightUpdate(tmp_path / "updates").add(base, part(NORM))
        assert served.exists()
        other.kill()
    WeightUpdate(tmp_path / "updates").add(base, part(NORM))
    assert not served.parent.exists()
