"""Facts of a model from its headers: sizes per block, split models, and what can never be served."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.model_file import PartName, read_model_file
from tests.unit.store.gguf_builder import GgufBytes, Tensor, key, string_key, uint_key

LAYERS = (
    Tensor("token_embd.weight"),
    Tensor("blk.0.attn_q.weight"),
    Tensor("blk.0.ffn_up.weight", (64,), data=b"\0" * 68),
    Tensor("blk.1.attn_q.weight"),
    Tensor("output.weight", (64,), data=b"\0" * 68),
)


def uint16_key(name: str, value: int) -> bytes:
    return key(name, 2, struct.pack("<H", value))


def test_sizes_are_counted_per_block(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = [uint_key("llama.context_length", 4096), string_key("general.name", "A model")]
    path.write_bytes(GgufBytes(keys=keys, tensors=LAYERS, n_layer=2).build())
    model = read_model_file(path)
    assert [layer.dense for layer in model.parts.layers] == [34 + 68, 34]
    assert model.parts.weights == model.tensor_bytes
    assert model.tensor_bytes == 34 * 3 + 68 * 2
    assert (model.architecture, model.name, model.n_ctx_train, model.n_layer) == ("llama", "A model", 4096, 2)
    assert model.chat_template is None
    assert model.pooling is None
    assert model.path == path
    assert model.file_bytes == path.stat().st_size


@pytest.mark.parametrize(("value", "name"), [(0, "none"), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank")])
def test_pooling_is_read(tmp_path: Path, value: int, name: str) -> None:
    path = tmp_path / "m.gguf"
    keys = [uint_key("bert.pooling_type", value), string_key("tokenizer.chat_template", "x")]
    path.write_bytes(GgufBytes(keys=keys, architecture="bert").build())
    model = read_model_file(path)
    assert model.pooling == name
    assert model.chat_template


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GgufBytes(architecture=None), "general.architecture is missing"),
        (GgufBytes(extra={"general.type": "adapter"}), "is a LoRA adapter"),
        (GgufBytes(extra={"general.type": "mmproj"}), "is a multimodal projector"),
        (GgufBytes(architecture="clip"), "is a multimodal projector"),
        (GgufBytes(tensors=()), "has no tensors"),
        (GgufBytes(n_layer=1_000_000), "1000000 blocks"),
        (GgufBytes(keys=[uint_key("llama.pooling_type", 9)]), "pooling type 9"),
        (GgufBytes(keys=[uint16_key("split.count", 3), uint16_key("split.no", 0)]), "must be named"),
    ],
)
def test_unservable_files_are_rejected(tmp_path: Path, content: GgufBytes, reason: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content.build())
    with pytest.raises(InvalidModel, match=reason):
        read_model_file(path)


def write_part(
    folder: Path, number: int, *, claims: int | None = None, tensors: tuple[Tensor, ...] = ()
) -> Path:
    path = folder / f"big-{number:05}-of-00002.gguf"
    keys = [uint16_key("split.count", 2), uint16_key("split.no", (claims or number) - 1)]
    architecture = "llama" if number == 1 else None
    path.write_bytes(GgufBytes(keys=keys, architecture=architecture, n_layer=2, tensors=tensors).build())
    return path


def test_split_models_are_added_up(tmp_path: Path) -> None:
    first = write_part(tmp_path, 1, tensors=LAYERS[:2])
    with pytest.raises(InvalidModel, match=r"big-00002-of-00002\.gguf, part 2 of 2, is missing"):
        read_model_file(first)
    second = write_part(tmp_path, 2, tensors=LAYERS[2:])
    model = read_model_file(first)
    assert model.paths == (first, second)
    assert [layer.dense for layer in model.parts.layers] == [34 + 68, 34]
    assert model.file_bytes == first.stat().st_size + second.stat().st_size
    write_part(tmp_path, 2, claims=1, tensors=LAYERS[2:])
    with pytest.raises(InvalidModel, match="is not part 2 of 2"):
        read_model_file(first)


def test_names_of_parts() -> None:
    assert PartName.parse("a-b-00002-of-00005.gguf") == PartName("a-b", 2, 5)
    assert PartName("a", 1, 2).all_files() == ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert PartName.parse("a-b.gguf") is None
    assert PartName.parse("-00001-of-00002.gguf") is None


@pytest.mark.parametrize(
    ("keys", "fills"),
    [
        (("fim_pre", "fim_suf", "fim_mid"), True),
        (("prefix", "suffix", "middle"), True),
        (("fim_pre", "suffix", "fim_mid"), True),
        (("fim_pre", "fim_suf"), False),
        ((), False),
    ],
)
def test_tokens_for_a_gap_have_a_newer_and_an_older_key(
    tmp_path: Path, keys: tuple[str, ...], *, fills: bool
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GgufBytes(keys=[uint_key(f"tokenizer.ggml.{key}_token_id", 1) for key in keys]).build())
    assert read_model_file(path).facts().fills_gaps == fills
