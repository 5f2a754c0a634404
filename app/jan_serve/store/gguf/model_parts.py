"""The parts of a model from its headers, as llama.cpp assigns tensors to blocks, input and output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from jan_serve.core.models.model_parts import LayerParts, ModelParts
from jan_serve.store.gguf.gguf_header import ArrayValue, GgufHeader, TensorInfo

_BLOCK_TENSOR: Final = re.compile(r"blk\.(\d+)\.")
_EXPERTS: Final = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps")
_INPUT: Final = re.compile(r"token_embd|token_types|position_embd|per_layer_token_embd|rope_freqs")
_EMBEDDINGS: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_HEAD: Final = ".nextn.eh_proj.weight"
_MAX_LENGTH: Final = 1 << 24
_SCAN_WIDTH: Final = 14
"""Values of a token that a selective scan keeps at once, in its inner widths: as measured with llama.cpp's buffers."""


def parts_of(
    header: GgufHeader,
    tensors: Iterable[TensorInfo],
    n_layer: int,
    overrides: Sequence[tuple[str, str]] = (),
    *,
    with_heads: bool = False,
) -> ModelParts:
    """header: with the model's keys. tensors: of all its files. overrides: as in PlacementOptions.

    with_heads: those that predict further tokens are to be loaded.
    """
    patterns = [(re.compile(pattern), device) for pattern, device in overrides]
    architecture = header.text("general.architecture") or ""
    n_ahead = min(n_layer, length_of(header, f"{architecture}.nextn_predict_layers"))
    n_loaded = n_layer - (0 if with_heads else n_ahead)
    heads: set[int] = set()
    dense, experts = [0] * n_layer, [0] * n_layer
    sizes = {"input": 0, "output": 0}
    pinned: dict[str, int] = {}
    largest = embeddings = 0
    has_output = False
    for tensor in tensors:
        match = _BLOCK_TENSOR.match(tensor.name)
        layer = int(match[1]) if match else None
        if layer is not None and tensor.name.endswith(_HEAD):
            heads.add(layer)
        if layer is not None and layer >= n_loaded:
            continue
        if tensor.name == _EMBEDDINGS:
            embeddings = tensor.n_bytes
        has_output = has_output or tensor.name == _OUTPUT
        device = next((name for pattern, name in patterns if pattern.search(tensor.name)), None)
        if device is not None:
            pinned[device] = pinned.get(device, 0) + tensor.n_bytes
        elif layer is not None:
            largest = max(largest, tensor.n_bytes)
            (experts if _EXPERTS.search(tensor.name) else dense)[layer] += tensor.n_bytes
        else:
            sizes["input" if _INPUT.match(tensor.name) else "output"] += tensor.n_bytes
    elements = cache_elements(header, architecture, n_layer)
    states = _state_elements(header, architecture, n_layer, [heads == 0 for heads, _ in elements])
    layers = tuple(
        LayerParts(dense[at], experts[at], *elements[at], states[at]) if at < n_loaded else LayerParts(0)
        for at in range(n_layer)
    )
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return ModelParts(
        layers=layers,
        input_bytes=sizes["input"],
        output_bytes=sizes["output"] + (0 if has_output else embeddings),
        tied_output=not has_output,
        largest_tensor=largest,
        n_expert=length_of(header, f"{architecture}.expert_count"),
        n_expert_used=length_of(header, f"{architecture}.expert_used_count"),
        n_embd=length_of(header, f"{architecture}.embedding_length"),
        n_vocab=tokens.length if isinstance(tokens, ArrayValue) else 0,
        n_head=max(per_layer(header, f"{architecture}.attention.head_count", n_layer), default=0),
        width=_width(header, architecture, n_layer),
        pinned=tuple(pinned.items()),
        n_ahead=len(heads) if len(heads) == n_ahead else 0,
    )


def cache_elements(header: GgufHeader, architecture: str, n_layer: int) -> list[tuple[int, int]]:
    """KV cache elements of K and V per token and block, as llama.cpp computes them (llama_hparams).

    Blocks without attention have no KV heads, or are not the last of so many. Sliding windows of some blocks are not
    subtracted.
    """
    prefix = f"{architecture}.attention"
    heads = per_layer(header, f"{prefix}.head_count", n_layer)
    kv_heads = per_layer(header, f"{prefix}.head_count_kv", n_layer) or heads
    n_embd = length_of(header, f"{architecture}.embedding_length")
    width = n_embd // max(heads) if any(heads) else 0
    k_width = length_of(header, f"{prefix}.key_length") or width
    v_width = length_of(header, f"{prefix}.value_length") or width
    counts = [*kv_heads, *([0] * n_layer)][:n_layer]
    if interval := length_of(header, f"{architecture}.full_attention_interval"):
        last = n_layer - length_of(header, f"{architecture}.nextn_predict_layers")
        counts = [0 if at < last and (at + 1) % interval else count for at, count in enumerate(counts)]
    return [(count * k_width, count * v_width) for count in counts]


def per_layer(header: GgufHeader, key: str, n_layer: int) -> list[int]:
    """A value per block, given as one number or an array; empty if missing."""
    value = header.metadata.get(key)
    if isinstance(value, ArrayValue):
        items = [item for item in value.items if isinstance(item, int) and 0 <= item <= _MAX_LENGTH]
        return items[:n_layer]
    number = length_of(header, key)
    return [number] * n_layer if number else []


def length_of(header: GgufHeader, key: str) -> int:
    """0 if missing or invalid: it only feeds an estimate, and llama.cpp rejects unusable values."""
    value = header.metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= _MAX_LENGTH else 0


def _state_elements(header: GgufHeader, architecture: str, n_layer: int, recurrent: list[bool]) -> list[int]:
    """float32 values of a sequence's state in each block (llama_hparams::n_embd_r, n_embd_s)."""
    n_embd = length_of(header, f"{architecture}.embedding_length")
    conv, inner, state, groups = (
        length_of(header, f"{architecture}.ssm.{name}")
        for name in ("conv_kernel", "inner_size", "state_size", "group_count")
    )
    short = length_of(header, f"{architecture}.shortconv.l_cache")
    head = length_of(header, f"{architecture}.wkv.head_size")
    shifts = length_of(header, f"{architecture}.token_shift_count") or 2
    if conv and inner:
        size = (conv - 1) * (inner + 2 * groups * state) + state * inner
    elif head:
        size = shifts * n_embd + n_embd * head
    else:
        size = n_embd * (short - 1) if short else 0
    return [size if each else 0 for each in recurrent]


def _width(header: GgufHeader, architecture: str, n_layer: int) -> int:
    """The most values of a token at once: of a feed-forward layer its input, output and both products; or of a scan."""
    n_embd = length_of(header, f"{architecture}.embedding_length")
    dense = max(per_layer(header, f"{architecture}.feed_forward_length", n_layer), default=0)
    used = length_of(header, f"{architecture}.expert_used_count")
    expert = length_of(header, f"{architecture}.expert_feed_forward_length") or (dense if used else 0)
    recurrent = _SCAN_WIDTH * length_of(header, f"{architecture}.ssm.inner_size")
    return max(2 * n_embd + max(2 * dense, used * (2 * expert + n_embd)), recurrent)
