"""Updates of weights, merged files, and the folder of a process."""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest, StoreError
from jan_serve.store.gguf import weight_update
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.weight_update import ProcessFolder, WeightUpdate, check_tensors, merge
from tests.unit.store.gguf_builder import F32, Q8_0, GgufBytes, Tensor, string_key, strings_key, uint_key


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


F16, BF16, Q4_0 = 1, 30, 2
MATRIX = Tensor("blk.0.ffn_up.weight", (32, 2), Q8_0, bytes(range(68)))
NORM = Tensor("blk.0.norm.weight", (5,), F32, struct.pack("<5f", 1, 2, 3, 4, 5))
EMBEDDING = Tensor("token_embd.weight", (32, 3), F32, bytes(384))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.gguf"
    keys = (strings_key("tokenizer.ggml.tokens", ["a", "bc", ""]), string_key("general.name", "é"))
    path.write_bytes(GgufBytes(keys=keys, tensors=(MATRIX, NORM, EMBEDDING)).build())
    return path


def update(tmp_path: Path, *tensors: Tensor, **fields: Any) -> Path:
    path = tmp_path / "update.gguf"
    path.write_bytes(GgufBytes(tensors=tensors, **fields).build())
    return path


def data_of(path: Path, name: str) -> tuple[str, tuple[int, ...], bytes]:
    header = read_gguf_header(path)
    tensor = next(tensor for tensor in header.tensors if tensor.name == name)
    start = header.data_offset + tensor.offset
    return tensor.type, tensor.shape, path.read_bytes()[start : start + tensor.n_bytes]


def test_a_merge_of_nothing_is_the_same_file(base: Path, tmp_path: Path) -> None:
    merge(read_gguf_header(base), {}, tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == base.read_bytes()


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_replaced_tensors_may_have_another_size(tmp_path: Path, alignment: int) -> None:
    base = tmp_path / "base.gguf"
    keys = (uint_key("general.alignment", alignment),)
    base.write_bytes(GgufBytes(keys=keys, alignment=alignment, tensors=(MATRIX, NORM, EMBEDDING)).build())
    new_matrix = Tensor(MATRIX.name, (32, 2), F16, struct.pack("<64e", *range(64)))
    new_embedding = Tensor(EMBEDDING.name, (32, 3), BF16, bytes(192))
    source = update(tmp_path, new_embedding, new_matrix)
    header = read_gguf_header(base)
    merge(header, check_tensors(header, read_gguf_header(source)), tmp_path / "merged.gguf")
    merged = read_gguf_header(tmp_path / "merged.gguf")
    assert [tensor.name for tensor in merged.tensors] == [MATRIX.name, NORM.name, EMBEDDING.name]
    assert merged.metadata == header.metadata
    assert data_of(merged.path, MATRIX.name) == ("F16", (32, 2), new_matrix.data)
    assert data_of(merged.path, NORM.name) == ("F32", (5,), NORM.data)
    assert data_of(merged.path, EMBEDDING.name) == ("BF16", (32, 3), new_embedding.data)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Tensor("nobody", (32, 2), Q8_0, bytes(68)), "no tensor 'nobody'"),
        (Tensor(MATRIX.name, (64,), Q8_0, bytes(68)), r"the shape \[64\], and the model's \[32, 2\]"),
        (Tensor(MATRIX.name, (32, 3), Q8_0, bytes(102)), r"the shape \[32, 3\]"),
        (Tensor(MATRIX.name, (32, 2), Q4_0, bytes(36)), "the type Q4_0; possible are BF16, F16, F32, Q8_0"),
        (Tensor(NORM.name, (5,), F16, bytes(10)), "the type F16; possible are F32"),
        (Tensor(NORM.name, (5,), F32, struct.pack("<5f", 1, 1, float("nan"), 1, 1)), "not finite"),
        (Tensor(NORM.name, (5,), F32, struct.pack("<5f", 1, 1, 1, 1, float("-inf"))), "not finite"),
        (Tensor(MATRIX.name, (32, 2), F16, b"\x00\x7c" * 64), "not finite"),
        (Tensor(MATRIX.name, (32, 2), BF16, b"\x80\x7f" * 64), "not finite"),
    ],
)
def test_a_mismatched_tensor_is_rejected_by_name(
    base: Path, tmp_path: Path, tensor: Tensor, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_tensors(read_gguf_header(base), read_gguf_header(update(tmp_path, tensor)))


def test_trailing_ones_of_a_shape_and_the_largest_finite_values_are_fine(base: Path, tmp_path: Path) -> None:
    matrix = Tensor(MATRIX.name, (32, 2, 1, 1), F16, b"\xff\x7b" * 64)
    norm = Tensor(NORM.name, (5, 1), F32, b"\xff\xff\x7f\xff" * 5)
    found = check_tensors(read_gguf_header(base), read_gguf_header(update(tmp_path, matrix, norm)))
    assert set(found) == {MATRIX.name, NORM.name}


def test_another_architecture_is_refused(base: Path, tmp_path: Path) -> None:
    header = read_gguf_header(base)
    assert check_tensors(header, read_gguf_header(update(tmp_path, NORM, architecture=None)))
    with pytest.raises(InvalidRequest, match="the architecture 'mamba'"):
        check_tensors(header, read_gguf_header(update(tmp_path, NORM, architecture="mamba")))


def test_a_full_disk_leaves_no_file(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(free=10)

    monkeypatch.setattr(weight_update.shutil, "disk_usage", usage)
    with pytest.raises(InsufficientStorage, match="the disk has 10"):
        merge(read_gguf_header(base), {}, tmp_path / "merged.gguf")
    assert not (tmp_path / "merged.gguf").exists()


def test_a_base_that_became_shorter_leaves_no_file(base: Path, tmp_path: Path) -> None:
    header = read_gguf_header(base)
    base.write_bytes(base.read_bytes()[:-40])
    with pytest.raises(InvalidModel, match="shorter"):
        merge(header, {}, tmp_path / "merged.gguf")
    assert not (tmp_path / "merged.gguf").exists()


def test_a_file_that_is_there_already_is_left_alone(base: Path, tmp_path: Path) -> None:
    (tmp_path / "merged.gguf").write_bytes(b"served")
    with pytest.raises(StoreError, match="Cannot write to"):
        merge(read_gguf_header(base), {}, tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == b"served"


@pytest.fixture
def small(tmp_path: Path) -> Path:
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
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[StoreError],
    failing: str,
) -> None:
    update = WeightUpdate(tmp_path / "updates")
    content = small.read_bytes()
    if failing == "open":
        update.add(small, content)
    real = Path.open

    def fail(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if failing == "open" and mode != "xb":
            return real(path, mode)
        raise OSError(number, "no")

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises(kind) as refused:
        update.merge() if failing == "open" else update.add(small, content)
    assert type(refused.value) is kind
    monkeypatch.undo()
    assert update.parts == 0
    update.close()


def test_parts_add_up_and_later_ones_win(small: Path, tmp_path: Path) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    first = Tensor(NORM.name, (5,), F32, struct.pack("<5f", 9, 9, 9, 9, 9))
    collected.add(small, part(first))
    collected.add(small, part(EMBEDDING))
    collected.add(small, part(NORM))
    assert collected.parts == 3
    merged = collected.merge()
    assert merged.tensors == 2
    assert merged.path.read_bytes() == small.read_bytes()
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
def test_a_bad_part_ends_the_update(small: Path, tmp_path: Path, bad: bytes, words: str) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    collected.add(small, part(NORM))
    with pytest.raises(InvalidRequest, match=words):
        collected.add(small, bad)
    assert (collected.parts, files(tmp_path)) == (0, [])
    with pytest.raises(InvalidRequest, match="no weights were sent"):
        collected.merge()


def test_updates_are_of_one_model_and_bounded(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    other = tmp_path / "other" / "base.gguf"
    other.parent.mkdir()
    other.write_bytes(small.read_bytes())
    collected.add(small, part(NORM))
    with pytest.raises(InvalidRequest, match="another model is not finished"):
        collected.add(other, part(NORM))
    collected.add(small, part(NORM))
    padded = part(NORM, keys=(string_key("general.description", "x" * 2 * small.stat().st_size),))
    with pytest.raises(InvalidRequest, match="twice the model"):
        collected.add(small, padded)
    monkeypatch.setattr(weight_update, "MAX_PARTS", 1)
    collected.add(small, part(NORM))
    with pytest.raises(InvalidRequest, match="1 parts at most"):
        collected.add(small, part(NORM))
    assert files(tmp_path / "updates") == []


def test_split_models_are_refused(tmp_path: Path) -> None:
    small = tmp_path / "base.gguf"
    small.write_bytes(GgufBytes(keys=(uint_key("split.count", 3),), tensors=(NORM,)).build())
    with pytest.raises(InvalidRequest, match="split into several files"):
        WeightUpdate(tmp_path / "updates").add(small, part(NORM))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_this_account_reads_weights(small: Path, tmp_path: Path) -> None:
    collected = WeightUpdate(tmp_path / "updates")
    collected.add(small, part(NORM))
    folder = collected.merge().path.parent
    assert [path.stat().st_mode & 0o077 for path in (folder, folder.parent)] == [0, 0]
