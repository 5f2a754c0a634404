"""The file of a head, and the head in torch beside llama.cpp's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.recipe.head.head_file import HeadShape, write_head, write_with_head

BUILTIN = Path(__file__).resolve().parents[3] / "models" / "builtin" / "jan-tiny.gguf"


def drawn(shape: HeadShape) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(dims).astype(np.float32) for name, dims in shape.tensor_shapes().items()
    }


def test_a_model_with_a_head_has_the_tensors_of_both(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    head, path = tmp_path / "head.gguf", tmp_path / "m.gguf"
    shape = HeadShape(192, 6)
    tensors = drawn(shape)
    write_head(head, shape, tensors)
    assert head.stat().st_size < 300_000
    write_with_head(path, BUILTIN, head, quantize=False)
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "glm4moe"
    assert fields["glm4moe.block_count"] == 8
    assert fields["glm4moe.leading_dense_block_count"] == 7
    assert fields["glm4moe.nextn_predict_layers"] == 1
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name, dims in shape.tensor_shapes().items():
        assert tuple(reversed(found[f"blk.7.{name}"].shape.tolist())) == dims
    assert "blk.6.post_attention_norm.weight" in found
    assert "blk.6.ffn_norm.weight" not in found


def test_tensors_of_another_shape_are_refused(tmp_path: Path) -> None:
    shape = HeadShape(192, 6)
    tensors = drawn(shape)
    tensors["nextn.enorm.weight"] = np.ones(191, np.float32)
    with pytest.raises(ValueError, match="do not fit the shape"):
        write_head(tmp_path / "head.gguf", shape, tensors)
