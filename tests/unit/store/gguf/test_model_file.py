"""Facts of a model from its headers: sizes per block, split models, and what can never be served."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from jan_serve.core.placement import ModelParts
from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.gguf_header import ArrayValue, GgufHeader, Scalar, TensorInfo
from jan_serve.store.gguf.model_file import parts_of, read_model_file
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


_INT32 = 5
_STRING = 8


def numbers(*values: int) -> ArrayValue:
    return ArrayValue(_INT32, len(values), values)


def parts(
    tensors: Mapping[str, int],
    keys: Mapping[str, int | ArrayValue] | None = None,
    overrides: tuple[tuple[str, str], ...] = (),
) -> ModelParts:
    """Parts of a model of two blocks. tensors: bytes by name. keys: of the architecture `x`."""
    metadata: dict[str, Scalar | ArrayValue] = {"general.architecture": "x"}
    metadata |= {f"x.{name}": value for name, value in (keys or {}).items()}
    metadata["tokenizer.ggml.tokens"] = ArrayValue(_STRING, 320)
    infos = [TensorInfo(name, (size,), "I8", 0, size) for name, size in tensors.items()]
    header = GgufHeader(Path("x.gguf"), 3, metadata, tuple(infos), 0, 0, 0, 0, 32)
    return parts_of(header, infos, 2, overrides)


def test_tensors_belong_to_blocks_to_the_input_or_to_the_output() -> None:
    found = parts(
        {
            "token_embd.weight": 100,
            "rope_freqs.weight": 1,
            "blk.0.attn_q.weight": 10,
            "blk.0.ffn_up_exps.weight": 40,
            "blk.0.ffn_gate_up_chexps.weight": 30,
            "blk.0.ffn_up_shexp.weight": 5,
            "blk.1.ffn_up.weight": 20,
            "output_norm.weight": 2,
            "output.weight": 90,
        }
    )
    assert [(layer.dense, layer.experts) for layer in found.layers] == [(15, 70), (20, 0)]
    assert (found.input_bytes, found.output_bytes, found.largest_tensor) == (101, 92, 40)
    assert (found.n_vocab, found.tied_output) == (320, False)
    assert found.weights == 298


def test_an_output_that_is_the_embeddings_counts_once_in_memory() -> None:
    found = parts({"token_embd.weight": 100, "output_norm.weight": 2})
    assert found.tied_output
    assert (found.input_bytes, found.output_bytes, found.weights) == (100, 102, 100)


def test_the_first_pattern_that_matches_takes_a_tensor_from_its_block() -> None:
    tensors = {
        "token_embd.weight": 7,
        "blk.0.ffn_up.weight": 10,
        "blk.1.ffn_up.weight": 20,
        "output.weight": 5,
    }
    found = parts(tensors, overrides=((r"blk\.1\.", "CUDA1"), ("ffn_up", "CPU"), ("ffn", "CUDA0")))
    assert dict(found.pinned) == {"CUDA1": 20, "CPU": 10}
    assert [layer.weights for layer in found.layers] == [0, 0]
    assert found.weights == 42


@pytest.mark.parametrize(
    ("keys", "elements"),
    [
        ({"embedding_length": 64, "attention.head_count": 4}, [(64, 64), (64, 64)]),
        ({"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2}, [(32, 32)] * 2),
        (
            {"attention.head_count": 4, "attention.key_length": 24, "attention.value_length": 8},
            [(96, 32), (96, 32)],
        ),
        (
            {"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": numbers(0, 4)},
            [(0, 0), (64, 64)],
        ),
        ({"embedding_length": -64, "attention.head_count": 1 << 30}, [(0, 0), (0, 0)]),
        (
            {"embedding_length": 64, "attention.head_count": 4, "full_attention_interval": 2},
            [(0, 0), (64, 64)],
        ),
        (
            {
                "embedding_length": 64,
                "attention.head_count": 4,
                "full_attention_interval": 4,
                "nextn_predict_layers": 1,
            },
            [(0, 0), (0, 0)],
        ),
    ],
)
def test_the_cache_of_a_token_in_each_block(
    keys: dict[str, int | ArrayValue], elements: list[tuple[int, int]]
) -> None:
    found = parts({}, keys)
    assert [(layer.k_elements, layer.v_elements) for layer in found.layers] == elements


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ({"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16}, 3 * 128 + 16 * 128),
        (
            {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.group_count": 2},
            3 * (128 + 2 * 2 * 16) + 16 * 128,
        ),
        ({"wkv.head_size": 16}, 2 * 64 + 64 * 16),
        ({"shortconv.l_cache": 3}, 64 * 2),
        ({}, 0),
    ],
)
def test_a_recurrent_state_is_in_blocks_without_attention(keys: dict[str, int], size: int) -> None:
    attention = {"attention.head_count": 4, "attention.head_count_kv": numbers(0, 4)}
    found = parts({}, {"embedding_length": 64, **attention, **keys})
    assert [layer.state_elements for layer in found.layers] == [size, 0]


@pytest.mark.parametrize(
    ("keys", "width"),
    [
        ({"feed_forward_length": 200}, 2 * 64 + 400),
        ({"feed_forward_length": numbers(200, 300)}, 2 * 64 + 600),
        ({"expert_used_count": 8, "expert_feed_forward_length": 96}, 2 * 64 + 8 * (2 * 96 + 64)),
        ({"ssm.inner_size": 128}, 14 * 128),
    ],
)
def test_the_values_that_a_token_has_at_once(keys: dict[str, int | ArrayValue], width: int) -> None:
    assert parts({}, {"embedding_length": 64, **keys}).width == width
