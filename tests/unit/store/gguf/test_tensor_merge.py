"""Files with some tensors replaced."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest, StoreError
from jan_serve.store.gguf import weight_update
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.weight_update import check_tensors, merge
from tests.unit.store.gguf_builder import F32, Q8_0, GgufBytes, Tensor, string_key, strings_key, uint_key

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
