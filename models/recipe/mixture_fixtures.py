"""Random-weight GGUF files of a mixture of experts, for tests of where its parts go."""

from __future__ import annotations

from pathlib import Path

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.fixtures import (
    LICENCE,
    Weights,
    add_decoder_vocabulary,
    fixture_vocabulary,
    head_and_tail,
)
from models.recipe.gguf_file import finish_gguf, gguf_writer


def write_tiny_mixture(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 4,
    n_embd: int = 128,
    n_expert: int = 8,
    n_used: int = 2,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """A Qwen3 mixture: each token reads `n_used` of the experts of each block."""
    n_head, width = n_embd // 32, 2 * n_embd
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "qwen3moe", (n_ctx, n_embd, n_layer), n_ff=width, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_expert_count(n_expert)
    writer.add_expert_used_count(n_used)
    writer.add_expert_feed_forward_length(width)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd)
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)}
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {"attn_q_norm.weight": (32,), "attn_k_norm.weight": (32,)}
        dims["ffn_gate_inp.weight"] = (n_expert, n_embd)
        dims |= {f"ffn_{part}_exps.weight": (n_expert, width, n_embd) for part in ("gate", "up")}
        dims["ffn_down_exps.weight"] = (n_expert, n_embd, width)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-mixture-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)
