"""GGUF files of a trained head: its tensors alone, and the built-in model with it as a GLM-4.5 model.

No architecture of llama.cpp is a plain llama with such a head. GLM-4.5 is, if its blocks are dense ones: the head's own
block has experts there, here a single one that each token reads. Needs only numpy and gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.fixtures import LICENCE
from models.recipe.gguf_file import add_bpe_vocabulary, file_type, finish_gguf, gguf_writer
from models.recipe.vocabulary import Vocabulary

Array = NDArray[np.float32]
ARCHITECTURE = "glm4moe"
_SHARED = 2
"""The expert that each token reads is so many times as wide as the routed one."""


@dataclass(frozen=True)
class HeadShape:
    """Sizes of the head's block. n_ff: of its routed expert."""

    n_embd: int
    n_head: int
    n_ff: int = 32

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Row-major shapes by GGUF name, without the block's number."""
        width, shared = self.n_embd, _SHARED * self.n_ff
        vectors = (
            "nextn.enorm",
            "nextn.hnorm",
            "attn_norm",
            "post_attention_norm",
            "nextn.shared_head_norm",
        )
        shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (width,) for name in vectors}
        shapes["nextn.eh_proj.weight"] = (width, 2 * width)
        shapes |= {f"attn_{part}.weight": (width, width) for part in ("q", "k", "v", "output")}
        shapes["ffn_gate_inp.weight"] = (1, width)
        shapes |= {f"ffn_{part}_exps.weight": (1, self.n_ff, width) for part in ("gate", "up")}
        shapes["ffn_down_exps.weight"] = (1, width, self.n_ff)
        shapes |= {f"ffn_{part}_shexp.weight": (shared, width) for part in ("gate", "up")}
        shapes["ffn_down_shexp.weight"] = (width, shared)
        return shapes


def write_head(path: Path, shape: HeadShape, tensors: Mapping[str, Array]) -> None:
    """The tensors alone, as Q8_0. Raises ValueError where one is missing, unknown or of the wrong shape."""
    if {name: array.shape for name, array in tensors.items()} != shape.tensor_shapes():
        raise ValueError("tensors do not fit the shape of the head")
    writer = gguf_writer(path, ARCHITECTURE, (0, shape.n_embd, 1), n_ff=shape.n_ff, n_head=shape.n_head)
    finish_gguf(writer, None, tensors, chat_template=None, metadata=LICENCE)


def write_with_head(path: Path, model: Path, head: Path, *, quantize: bool = True) -> None:
    """`model`, of the llama architecture with a tied embedding, with the head of `write_head`."""
    fields, weights = _read(model)
    head_fields, head_weights = _read(head)
    n_layer, n_embd, n_head, n_ctx = (
        int(fields[f"llama.{key}"])
        for key in ("block_count", "embedding_length", "attention.head_count", "context_length")
    )
    n_ff = int(fields["llama.feed_forward_length"])
    writer = gguf_writer(path, ARCHITECTURE, (n_ctx, n_embd, n_layer + 1), n_ff=n_ff, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_rope_freq_base(fields["llama.rope.freq_base"])
    writer.add_layer_norm_rms_eps(fields["llama.attention.layer_norm_rms_epsilon"])
    writer.add_expert_count(1)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(_SHARED)
    writer.add_expert_feed_forward_length(int(head_fields[f"{ARCHITECTURE}.feed_forward_length"]))
    writer.add_leading_dense_block_count(n_layer)
    writer.add_nextn_predict_layers(1)
    writer.add_file_type(file_type(quantize))
    merges = (merge.split(" ") for merge in fields["tokenizer.ggml.merges"])
    add_bpe_vocabulary(writer, Vocabulary.from_merges((left, right) for left, right in merges))
    tensors = {
        name.replace("ffn_norm", "post_attention_norm"): _in_halves(name, array, n_head)
        for name, array in weights.items()
    }
    tensors |= {f"blk.{n_layer}.{name}": array for name, array in head_weights.items()}
    tensors[f"blk.{n_layer}.exp_probs_b.bias"] = np.zeros(1, np.float32)
    names = {"general.name": "jan-tiny-head", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    reader = gguf.GGUFReader(path)
    weights = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in reader.tensors
    }
    return {name: field.contents() for name, field in reader.fields.items()}, weights


def _in_halves(name: str, array: Array, n_head: int) -> Array:
    """Query and key rows with the halves of a head apart, as this architecture rotates them."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return array
    rows, columns = array.shape
    return array.reshape(n_head, -1, 2, columns).swapaxes(1, 2).reshape(rows, columns)
