"""Updates: parts are collected, checked and merged; nothing of them stays behind."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InsufficientStorage, InvalidRequest, StoreError
from jan_serve.store.gguf import weight_update
from jan_serve.store.gguf.weight_update import WeightUpdate
from tests.unit.store.gguf_builder import F32, GgufBytes, Tensor, string_key, uint_key

NORM = Tensor("blk.0.norm.weight", (5,), F32, struct.pack("<5f", 1, 2, 3, 4, 5))
EMBEDDING = Tensor("token_embd.weight", (32, 3), F32, bytes(384))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.gguf"
    path.write_bytes(GgufBytes(tensors=(NORM, EMBEDDING)).build())
    return path


def part(*tensors: Tensor, **fields: Any) -> bytes:
    return GgufBytes(tensors=tensors, **fields).build()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.gguf") if path.name != "base.gguf")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, InsufficientStorage),
        (errno.EDQUOT, InsufficientStorage),
        (errno.EROFS, StoreError),
    ],
)
@pytest.mark.parametrize("failing", ["write_bytes", "open", "mkdir"])
def test_a_disk_that_takes_no_weights(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[StoreError],
    failing: str,
) -> None:
    update = WeightUpdate(tmp_path / "updates")
    content = base.read_bytes()
    if failing == "open":
        update.add(base, content)
    real = Path.open

    def fail(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if failing == "open" and mode != "xb":
            return real(path, mode)
        raise OSError(number, "no")

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises(kind) as refused:
        update.merge() if failing == "open" else update.add(base, content)
    assert type(refused.value) is kind
    monkeypatch.undo()
    assert update.parts == 0
    update.close()


def test_parts_add_up_and_later_ones_win(base: Path, tmp_path: Path) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    first = Tensor(NORM.name, (5,), F32, struct.pack("<5f", 9, 9, 9, 9, 9))
    collected.add(base, part(first))
    collected.add(base, part(EMBEDDING))
    collected.add(base, part(NORM))
    assert collected.parts == 3
    merged = collected.merge()
    assert merged.tensors == 2
    assert merged.path.read_bytes() == base.read_bytes()
    assert (collected.parts, files(tmp_path)) == (0, [merged.path.name])
    collected.add(merged.path, part(first))
    second = collected.merge()
    assert second.number > merged.number
    collected.delete(merged)
    assert files(tmp_path) == [second.path.name]
    collected.close()
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"\x80\x04pickle", "this is a pickle"),
        (b"PK\x03\x04zip", "this is a pickle"),
        (b"", "not a GGUF file"),
        (b"GGUF", "ends inside"),
        (part(NORM)[:-8], "incomplete"),
        (part(Tensor("x", (32,), F32, bytes(128))), "no tensor 'x'"),
    ],
)
def test_a_bad_part_ends_the_update(base: Path, tmp_path: Path, bad: bytes, words: str) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    collected.add(base, part(NORM))
    with pytest.raises(InvalidRequest, match=words):
        collected.add(base, bad)
    assert (collected.parts, files(tmp_path)) == (0, [])
    with pytest.raises(InvalidRequest, match="no weights were sent"):
        collected.merge()


def test_updates_are_of_one_model_and_bounded(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    other = tmp_path / "other" / "base.gguf"
    other.parent.mkdir()
    other.write_bytes(base.read_bytes())
    collected.add(base, part(NORM))
    with pytest.raises(InvalidRequest, match="another model is not finished"):
        collected.add(other, part(NORM))
    collected.add(base, part(NORM))
    padded = part(NORM, keys=(string_key("general.description", "x" * 2 * base.stat().st_size),))
    with pytest.raises(InvalidRequest, match="twice the model"):
        collected.add(base, padded)
    monkeypatch.setattr(weight_update, "MAX_PARTS", 1)
    collected.add(base, part(NORM))
    with pytest.raises(InvalidRequest, match="1 parts at most"):
        collected.add(base, part(NORM))
    assert files(tmp_path / "updates") == []


def test_split_models_are_refused(tmp_path: Path) -> None:
    base = tmp_path / "base.gguf"
    base.write_bytes(GgufBytes(keys=(uint_key("split.count", 3),), tensors=(NORM,)).build())
    with pytest.raises(InvalidRequest, match="split into several files"):
        WeightUpdate(tmp_path / "updates").add(base, part(NORM))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_this_account_reads_weights(base: Path, tmp_path: Path) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    collected.add(base, part(NORM))
    folder = collected.merge().path.parent
    assert [path.stat().st_mode & 0o077 for path in (folder, folder.parent)] == [0, 0]
