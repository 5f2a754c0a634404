"""Parts of models that have no more than a header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jan_serve.core.models.model_parts import ModelParts
from jan_serve.store.gguf.gguf_header import ArrayValue, GgufHeader, Scalar, TensorInfo
from jan_serve.store.gguf.model_parts import parts_of

_INT32 = 5
_STRING = 8


def numbers(*values: int) -> ArrayValue:
    return ArrayValue(_INT32, len(values), values)


def parts(
    tensors: Mapping[str, int],
    keys: Mapping[str, int | ArrayValue] | None = None,
    overrides: tuple[tuple[str, str], ...] = (),
) -> ModelParts:
    """Of two blocks. tensors: bytes by name. keys: of the architecture `x`."""
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
    assert (found.n_vocab, found.has_experts, found.tied_output) == (320, True, False)
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
