"""GGUF files of models with a head that predicts the token after the next one (MTP), for tests of drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.fixtures import (
    LICENCE,
    Weights,
    add_decoder_vocabulary,
    fixture_vocabulary,
    head_and_tail,
)
from models.recipe.gguf_file import finish_gguf, gguf_writer
from models.recipe.vocabulary import CONTROL_TOKENS, Vocabulary

Array = NDArray[np.float32]
Dims = dict[str, tuple[int, ...]]
Knows = Literal["nothing", "token", "hidden"]
_HEAD_WIDTH = 32


def write_tiny_mtp(
    path: Path,
    *,
    knows: Knows = "nothing",
    share: float = 1.0,
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 128,
    n_expert: int = 4,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """A GLM-4.5 mixture of `n_layer` blocks and one head.

    knows: ``nothing``: random weights, whose head is wrong nearly always. Otherwise the answer is a fixed round of all
    tokens, which the head knows: from the newest ``token``, or from the ``hidden`` state of the one before, and then
    only the first drafted token is right. share: of the tokens, those that it knows the follower of.
    """
    n_head, width = n_embd // _HEAD_WIDTH, 2 * n_embd
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "glm4moe", (n_ctx, n_embd, n_layer + 1), n_ff=width, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(_HEAD_WIDTH)
    writer.add_value_length(_HEAD_WIDTH)
    writer.add_rope_dimension_count(_HEAD_WIDTH // 2)
    writer.add_expert_count(n_expert)
    writer.add_expert_used_count(2)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(width)
    writer.add_leading_dense_block_count(1)
    writer.add_nextn_predict_layers(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd)
    for layer in range(n_layer + 1):
        dims: Dims = {
            "attn_norm.weight": (n_embd,),
            "post_attention_norm.weight": (n_embd,),
        }
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        if layer == 0:
            dims |= _feed_forward("", n_embd, width)
        else:
            dims |= {"ffn_gate_inp.weight": (n_expert, n_embd), "exp_probs_b.bias": (n_expert,)}
            dims |= {f"ffn_{part}_exps.weight": (n_expert, width, n_embd) for part in ("gate", "up")}
            dims["ffn_down_exps.weight"] = (n_expert, n_embd, width)
            dims |= _feed_forward("_shexp", n_embd, width)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    _add_head(tensors, weights, n_layer, n_embd)
    if knows != "nothing":
        _teach(tensors, vocabulary, n_layer, knows, share)
    names = {"general.name": f"tiny-mtp-{knows}-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def write_tiny_recurrent_mtp(
    path: Path, *, knows: Knows = "nothing", seed: int = 0, n_ctx: int = 512, quantize: bool = True
) -> None:
    """A Qwen3.5 of a block with a gated delta net, one with attention, and a head. knows: as in write_tiny_mtp."""
    n_embd, n_head, n_layer, width = 128, 4, 2, 256
    groups, inner = 2, n_head * _HEAD_WIDTH
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "qwen35", (n_ctx, n_embd, n_layer + 1), n_ff=width, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(_HEAD_WIDTH)
    writer.add_value_length(_HEAD_WIDTH)
    writer.add_rope_dimension_count(_HEAD_WIDTH)
    writer.add_rope_dimension_sections([8, 4, 4, 0])
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(_HEAD_WIDTH)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(n_head)
    writer.add_ssm_group_count(groups)
    writer.add_full_attention_interval(n_layer)
    writer.add_nextn_predict_layers(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd)
    convolved = inner + 2 * groups * _HEAD_WIDTH
    for layer in range(n_layer + 1):
        dims: Dims = {"attn_norm.weight": (n_embd,), "post_attention_norm.weight": (n_embd,)}
        dims |= _feed_forward("", n_embd, width)
        if layer == 0:
            dims |= {"attn_qkv.weight": (convolved, n_embd), "attn_gate.weight": (inner, n_embd)}
            dims |= {"ssm_conv1d.weight": (convolved, 4), "ssm_norm.weight": (_HEAD_WIDTH,)}
            dims |= {f"ssm_{part}.weight": (n_head, n_embd) for part in ("alpha", "beta")}
            dims |= {"ssm_out.weight": (n_embd, inner), "ssm_dt.bias": (n_head,), "ssm_a": (n_head,)}
        else:
            dims["attn_q.weight"] = (2 * n_embd, n_embd)
            dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("k", "v", "output")}
            dims |= {f"attn_{part}_norm.weight": (_HEAD_WIDTH,) for part in ("q", "k")}
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    # The state fades slowly: an answer depends on tokens far back.
    tensors["blk.0.ssm_a"] = np.full(n_head, -0.05, np.float32)
    _add_head(tensors, weights, n_layer, n_embd)
    if knows != "nothing":
        _teach(tensors, vocabulary, n_layer, knows, 1.0)
    names = {"general.name": f"tiny-recurrent-mtp-{knows}-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def _add_head(tensors: dict[str, Array], weights: Weights, layer: int, n_embd: int) -> None:
    tensors[f"blk.{layer}.nextn.eh_proj.weight"] = weights.named("nextn.eh_proj.weight", (n_embd, 2 * n_embd))
    for norm in ("enorm", "hnorm"):
        tensors[f"blk.{layer}.nextn.{norm}.weight"] = np.ones(n_embd, np.float32)


def _feed_forward(suffix: str, n_embd: int, width: int) -> Dims:
    return {
        f"ffn_gate{suffix}.weight": (width, n_embd),
        f"ffn_up{suffix}.weight": (width, n_embd),
        f"ffn_down{suffix}.weight": (n_embd, width),
    }


def _teach(
    tensors: dict[str, Array], vocabulary: Vocabulary, n_layer: int, knows: Knows, share: float
) -> None:
    """Blocks add nothing, so that the state of a token is its embedding, and the output finds what follows that."""
    for name, tensor in tensors.items():
        if any(part in name for part in (".attn_output.", ".ffn_down", ".ssm_out.")):
            tensor[:] = 0.0
    embeddings = tensors["token_embd.weight"]
    n_embd = embeddings.shape[1]
    control = {vocabulary.id_of(token) for token in CONTROL_TOKENS}
    round_ = np.array([token for token in range(len(embeddings)) if token not in control])

    def finds(steps: int, share: float = 1.0) -> Array:
        output = np.zeros_like(embeddings)
        followers = np.roll(round_, -steps)
        unknown = np.random.default_rng(0).permutation(len(round_))[: round((1.0 - share) * len(round_))]
        followers[unknown] = np.roll(followers[unknown], 1)
        output[followers] = embeddings[round_] / np.sqrt(n_embd)
        return output

    tensors["output.weight"] = finds(1)
    tensors[f"blk.{n_layer}.nextn.shared_head_head.weight"] = finds(1 if knows == "token" else 2, share)
    project = tensors[f"blk.{n_layer}.nextn.eh_proj.weight"]
    project[:] = 0.0
    if knows == "token":
        project[:, :n_embd] = np.eye(n_embd)
    else:
        project[:, n_embd:] = np.eye(n_embd)
