"""Writes LoRA adapters of random weights for tests: GGUF files as llama.cpp's `convert_lora_to_gguf` makes them.

They load and change what a fixture model says, and have learnt nothing. Needs only numpy and gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray


def write_lora(
    path: Path,
    shapes: Mapping[str, tuple[int, int]],
    *,
    seed: int = 0,
    rank: int = 4,
    alpha: float = 4.0,
    strength: float = 1.0,
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """An adapter for matrices of these (out, in) shapes by their names in the model.

    A has rows of `in`, B columns of `rank`; alpha / rank scales their product, whose entries have about the standard
    deviation strength / sqrt(in), that of a fixture's own weights. metadata: integers, texts and lists of integers.
    """
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for key, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_key_value(key, list(value), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)
    for name, (n_out, n_in) in shapes.items():
        writer.add_tensor(f"{name}.lora_a", _normal(random, (rank, n_in), 1 / np.sqrt(n_in)))
        writer.add_tensor(
            f"{name}.lora_b", _normal(random, (n_out, rank), strength * rank / alpha / np.sqrt(rank))
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_shapes(n_layer: int = 2, n_embd: int = 64) -> dict[str, tuple[int, int]]:
    """The attention and feed-forward matrices of `fixtures.write_tiny_llama` that adapters usually change."""
    shapes: dict[str, tuple[int, int]] = {}
    for layer in range(n_layer):
        for name in ("attn_q", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}.weight"] = (n_embd, n_embd)
        shapes[f"blk.{layer}.ffn_down.weight"] = (n_embd, 2 * n_embd)
    return shapes


def _normal(random: np.random.Generator, shape: tuple[int, int], spread: float) -> NDArray[np.float32]:
    return (random.standard_normal(shape) * spread).astype(np.float32)
