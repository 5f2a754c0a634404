"""Writes GGUF files with the header of a published model and no weights: as large as the model, and sparse. The
tensors and keys are those that llama.cpp's models of the architecture ask for (src/models). Types as in Q4_K_M, of
gpt-oss MXFP4 (llama_tensor_get_type)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from tests.unit.placement.shapes import SHAPES, Shape

ARCHITECTURES: Final = {
    "Llama-3.1-8B": "llama",
    "Llama-3.3-70B": "llama",
    "Mixtral-8x7B": "llama",
    "Qwen3-30B-A3B": "qwen3moe",
    "Qwen3-235B-A22B": "qwen3moe",
    "gpt-oss-20b": "gpt-oss",
    "gpt-oss-120b": "gpt-oss",
    "GLM-4.5-Air": "glm4moe",
    "Llama-4-Scout": "llama4",
    "DeepSeek-V2-Lite": "deepseek2",
    "DeepSeek-V3": "deepseek2",
}
# Of DeepSeek's attention, as published: rank of the keys and values, part of a key with positions, width of a value.
_KV_RANK: Final = 512
_ROPE: Final = 64
_VALUE: Final = 128
_QUERY_RANK: Final = {"DeepSeek-V3": 1536}
_K_BLOCK: Final = 256
_INSTEAD: Final = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}
"""What llama.cpp takes for a row that is no multiple of a K-quant's block."""

Tensors = dict[str, tuple[tuple[int, ...], Type]]


def write_header(path: Path, name: str) -> None:
    """name: of SHAPES. Blocks little: the data is a hole in the file."""
    shape, architecture = SHAPES[name], ARCHITECTURES[name]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(131_072)
    writer.add_embedding_length(shape.embd)
    writer.add_block_count(shape.layers)
    writer.add_head_count(shape.heads)
    writer.add_feed_forward_length(shape.ff or shape.expert_ff)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
        if architecture != "llama":
            writer.add_expert_feed_forward_length(shape.expert_ff)
    if architecture == "deepseek2":
        writer.add_head_count_kv(1)
        writer.add_key_length(_KV_RANK + _ROPE)
        writer.add_value_length(_KV_RANK)
        writer.add_key_length_mla(shape.head)
        writer.add_value_length_mla(_VALUE)
        writer.add_kv_lora_rank(_KV_RANK)
        if name in _QUERY_RANK:
            writer.add_q_lora_rank(_QUERY_RANK[name])
        writer.add_rope_dimension_count(_ROPE)
    else:
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_rope_dimension_count(shape.head)
    if shape.n_dense:
        writer.add_leading_dense_block_count(shape.n_dense)
    if shape.shared_ff:
        writer.add_expert_shared_count(shape.shared_ff // shape.expert_ff)
    if architecture == "gpt-oss":
        writer.add_sliding_window(128)
    if architecture == "llama4":
        writer.add_interleave_moe_layer_step(shape.every)
    for tensor, (dims, kind) in tensors_of(name).items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(dims, dtype=np.int64)) // block * size
        writer.add_tensor_info(tensor, dims, np.dtype(np.float32), n_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    data = sum(info.nbytes + -info.nbytes % 32 for info in writer.tensors[0].values())
    with path.open("r+b") as file:
        end = file.seek(0, 2)
        file.truncate(end + -end % 32 + data)


def tensors_of(name: str) -> Tensors:
    """Row-major dimensions and type of each tensor."""
    shape, architecture = SHAPES[name], ARCHITECTURES[name]
    found: Tensors = {"output_norm.weight": ((shape.embd,), Type.F32)}
    wide = Type.Q8_0 if architecture == "gpt-oss" else Type.Q4_K
    found["token_embd.weight"] = ((shape.vocab, shape.embd), wide)
    found["output.weight"] = ((shape.vocab, shape.embd), Type.Q8_0 if wide == Type.Q8_0 else Type.Q6_K)
    for number in range(shape.layers):
        block: Tensors = {}
        more = _more_bits(number, shape.layers) if wide == Type.Q4_K else wide
        if architecture == "deepseek2":
            _latent_attention(block, shape, _QUERY_RANK.get(name, 0))
        else:
            _attention(block, shape, architecture, wide, more)
        _feed_forward(block, shape, architecture, number, more)
        for tensor, (dims, kind) in block.items():
            fits = kind not in _INSTEAD or dims[-1] % _K_BLOCK == 0
            found[f"blk.{number}.{tensor}"] = (dims, kind if fits else _INSTEAD[kind])
    return found


def _more_bits(number: int, count: int) -> Type:
    """The type of attn_v and ffn_down in Q4_K_M (use_more_bits)."""
    first = count // 8
    more = number < first or number >= 7 * count // 8 or (number - first) % 3 == 2
    return Type.Q6_K if more else Type.Q4_K


def _attention(block: Tensors, shape: Shape, architecture: str, wide: Type, more: Type) -> None:
    query, kv = shape.heads * shape.head, shape.kv_heads * shape.head
    norm = "post_attention_norm" if architecture in ("gpt-oss", "glm4moe") else "ffn_norm"
    for each in ("attn_norm", norm):
        block[f"{each}.weight"] = ((shape.embd,), Type.F32)
    block["attn_q.weight"] = ((query, shape.embd), wide)
    block["attn_k.weight"] = ((kv, shape.embd), wide)
    block["attn_v.weight"] = ((kv, shape.embd), more)
    block["attn_output.weight"] = ((shape.embd, query), wide)
    if architecture == "qwen3moe":
        block["attn_q_norm.weight"] = block["attn_k_norm.weight"] = ((shape.head,), Type.F32)
    if architecture in ("gpt-oss", "glm4moe"):
        for each, width in (("q", query), ("k", kv), ("v", kv)):
            block[f"attn_{each}.bias"] = ((width,), Type.F32)
    if architecture == "gpt-oss":
        block["attn_output.bias"] = ((shape.embd,), Type.F32)
        block["attn_sinks.weight"] = ((shape.heads,), Type.F32)


def _latent_attention(block: Tensors, shape: Shape, query_rank: int) -> None:
    """DeepSeek's: one latent key and value for all heads."""
    query, content = shape.heads * shape.head, shape.head - _ROPE
    for each, width in (("attn_norm", shape.embd), ("ffn_norm", shape.embd), ("attn_kv_a_norm", _KV_RANK)):
        block[f"{each}.weight"] = ((width,), Type.F32)
    if query_rank:
        block["attn_q_a_norm.weight"] = ((query_rank,), Type.F32)
        block["attn_q_a.weight"] = ((query_rank, shape.embd), Type.Q4_K)
        block["attn_q_b.weight"] = ((query, query_rank), Type.Q4_K)
    else:
        block["attn_q.weight"] = ((query, shape.embd), Type.Q4_K)
    block["attn_kv_a_mqa.weight"] = ((_KV_RANK + _ROPE, shape.embd), Type.Q4_K)
    block["attn_k_b.weight"] = ((shape.heads, _KV_RANK, content), Type.Q4_K)
    block["attn_v_b.weight"] = ((shape.heads, _VALUE, _KV_RANK), Type.Q4_K)
    block["attn_output.weight"] = ((shape.embd, shape.heads * _VALUE), Type.Q4_K)


def _feed_forward(block: Tensors, shape: Shape, architecture: str, number: int, more: Type) -> None:
    is_mixture = bool(shape.experts) and number >= shape.n_dense and number % shape.every == shape.every - 1
    if not is_mixture:
        _matrices(block, "", (), shape.embd, shape.ff, more)
        return
    block["ffn_gate_inp.weight"] = ((shape.experts, shape.embd), Type.F32)
    down = Type.MXFP4 if architecture == "gpt-oss" else more
    _matrices(block, "_exps", (shape.experts,), shape.embd, shape.expert_ff, down)
    if shape.shared_ff:
        _matrices(block, "_shexp", (), shape.embd, shape.shared_ff, more)
    if architecture == "glm4moe":
        block["exp_probs_b.bias"] = ((shape.experts,), Type.F32)
    if architecture == "gpt-oss":
        block["ffn_gate_inp.bias"] = ((shape.experts,), Type.F32)
        widths = {"gate": shape.expert_ff, "up": shape.expert_ff, "down": shape.embd}
        for each, width in widths.items():
            block[f"ffn_{each}_exps.bias"] = ((shape.experts, width), Type.F32)


def _matrices(block: Tensors, suffix: str, count: tuple[int, ...], embd: int, ff: int, down: Type) -> None:
    wide = Type.MXFP4 if down == Type.MXFP4 else Type.Q4_K
    for each in ("gate", "up"):
        block[f"ffn_{each}{suffix}.weight"] = ((*count, ff, embd), wide)
    block[f"ffn_down{suffix}.weight"] = ((*count, embd, ff), down)
