"""What a model takes of memory, from the keys of its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jan_serve.store.gguf.model_file import ModelFile, read_model_file
from jan_serve.store.model_memory import Footprint, footprint
from tests.unit.store.gguf_builder import ARRAY, GgufBytes, Tensor, ints_key, key, strings_key, uint_key

BLOCK = 34
FILE_KEYS = [
    uint_key("llama.context_length", 4096),
    uint_key("llama.embedding_length", 64),
    uint_key("llama.attention.head_count", 8),
    uint_key("llama.attention.head_count_kv", 2),
    strings_key("tokenizer.ggml.tokens", ["a", "b", "c"]),
]


def model(folder: Path, *keys: bytes, n_layer: int = 2, without: tuple[str, ...] = ()) -> ModelFile:
    """A file of two blocks with these keys beside the usual ones."""
    usual = [each for each in FILE_KEYS if not any(name.encode() in each for name in without)]
    blocks = [Tensor(f"blk.{number}.ffn_up.weight") for number in range(n_layer)]
    path = folder / "m.gguf"
    path.write_bytes(GgufBytes(keys=[*usual, *keys], tensors=[Tensor("x"), *blocks], n_layer=n_layer).build())
    return read_model_file(path)


def size(file: ModelFile, **settings: Any) -> Footprint:
    """With settings that are named, and plain ones."""
    plain: dict[str, Any] = {
        "n_ctx": None, "type_k": "f16", "type_v": "f16", "n_ubatch": 512, "gpu_layers": None, "mapped": True,
    }  # fmt: skip
    return footprint(file, **(plain | settings))


@pytest.mark.parametrize(
    ("keys", "without", "expected"),
    [
        ((), (), (2 * 2 * 8, 2 * 2 * 8)),
        ((), ("head_count_kv",), (2 * 8 * 8, 2 * 8 * 8)),
        ((uint_key("llama.attention.key_length", 32),), (), (2 * 2 * 32, 2 * 2 * 8)),
        ((uint_key("llama.attention.value_length", 16),), (), (2 * 2 * 8, 2 * 2 * 16)),
        ((ints_key("llama.attention.head_count_kv", [0, 4]),), ("head_count_kv",), (4 * 8, 4 * 8)),
        ((), ("head_count_kv", "attention.head_count"), (0, 0)),
        ((ints_key("llama.attention.head_count_kv", [-5, 1 << 30]),), ("head_count_kv",), (16 * 8, 16 * 8)),
        ((uint_key("llama.attention.key_length", (1 << 32) - 1),), (), (2 * 2 * 8, 2 * 2 * 8)),
        ((uint_key("llama.attention.value_length", 1 << 20),), (), (2 * 2 * 8, 2 * 2 * 8)),
        ((uint_key("llama.attention.head_count_kv", 1 << 20),), ("head_count_kv",), (2 * 8 * 8, 2 * 8 * 8)),
    ],
    ids=["grouped heads", "all heads", "wide keys", "wide values", "blocks without attention", "no attention",
         "senseless heads", "senseless width", "values that no model has", "heads that no model has"],
)  # fmt: skip
def test_elements_of_a_token_in_the_cache(
    tmp_path: Path, keys: tuple[bytes, ...], without: tuple[str, ...], expected: tuple[int, int]
) -> None:
    file = model(tmp_path, *keys, without=without)
    assert (file.k_elements, file.v_elements) == expected


def test_the_parts_of_a_footprint(tmp_path: Path) -> None:
    file = model(tmp_path)
    assert (file.n_vocab, file.n_embd) == (3, 64)
    whole = size(file)
    assert whole.weights == 3 * BLOCK
    assert whole.context == 4096 * 64 * 2
    assert whole.least_context == 2048 * 64 * 2
    assert whole.total == whole.weights + whole.context + whole.working
    assert whole.least == whole.weights + whole.least_context + whole.working
    assert size(file, n_ctx=100).context == size(file, n_ctx=100).least_context == 100 * 64 * 2
    assert size(file, type_k="q8_0", type_v="q8_0", n_ctx=64).context == 64 * 64 * 34 // 32
    assert size(file, n_ubatch=1024).working > whole.working


def test_working_space_grows_with_the_vocabulary_and_without_flash_attention_with_heads_and_context(
    tmp_path: Path,
) -> None:
    file = model(tmp_path)
    words = strings_key("tokenizer.ggml.tokens", [f"word{number}" for number in range(1003)])
    (tmp_path / "words").mkdir()
    larger = model(tmp_path / "words", words, without=("tokenizer.ggml.tokens",))
    assert (file.n_head, larger.n_vocab) == (8, 1003)
    # Its tables, and the logits of the sequences that run.
    assert size(larger).working - size(file).working == 1000 * (800 + 4 * 64)
    whole, scores = (size(file, n_ctx=4096, flash_attn=flash).working for flash in (True, False))
    assert scores - whole == 512 * 4096 * (4 + 4 * 8 - 2)


@pytest.mark.parametrize(
    ("gpu_layers", "blocks", "cached"), [(None, 0, 0), (0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 2), (-1, 3, 2)]
)
def test_bytes_on_accelerators(tmp_path: Path, gpu_layers: int | None, blocks: int, cached: int) -> None:
    """The output layer goes first: it is the first of `gpu_layers` and has no cache."""
    per_block = 64 * 32 * 2
    assert (
        size(model(tmp_path), n_ctx=64, gpu_layers=gpu_layers).on_device
        == blocks * BLOCK + cached * per_block
    )


def test_an_array_of_another_type_counts_for_nothing(tmp_path: Path) -> None:
    floats = key("llama.attention.head_count_kv", ARRAY, b"\x06\0\0\0\1\0\0\0\0\0\0\0\0\0\x80\x3f")
    assert model(tmp_path, floats, without=("head_count_kv",)).k_elements == 2 * 8 * 8
