"""Checks headers of models and LoRA adapters for values at which llama.cpp, which checks shapes, ends the worker.

Sources: the assertions of llama.cpp's `llama_model_base::load_hparams` and `llama_vocab::impl::load`, ggml's table
of types; `llama-adapter.cpp` for keys and names of adapters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.quantisation import INTEGERS, NEVER_STORED

_MAX_BLOCKS: Final = 512  # LLAMA_MAX_LAYERS
_MAX_EXPERTS: Final = 1024  # LLAMA_MAX_EXPERTS
_MEMORY_ALIGNMENT: Final = 32  # of tensors in ggml's buffers, which a mapped file is
_MAX_CONTEXT: Final = (1 << 31) - 1
_ROPE_SCALING: Final = ("none", "linear", "yarn", "longrope")
_MULTIPLIED: Final = re.compile(
    r"(token_embd|output|.*_norm|(enc\.|dec\.)?blk\.\d+\."
    r"(attn_(qkv|q|k|v|output)|ffn_(gate|up|down)(_exps|_shexp)?|ffn_gate_inp))\.(weight|bias)\Z"
)
"""Tensors of all architectures that have numbers. Tables of integers, such as `d2t`, have other names."""


def check_weights(header: GgufHeader) -> None:
    """Types and places of the tensors of a model or a projector. Raises InvalidModel."""
    _refuse_first(header, _faults_of_weights(header))


def check_model(headers: Sequence[GgufHeader], architecture: str) -> None:
    """headers: of all parts. Raises InvalidModel, which names the file, the key or tensor, and the limit."""
    for check in (_faults_of_sizes, _faults_of_experts, _faults_of_numbers):
        _refuse_first(headers[0], check(headers[0], architecture))
    _refuse_first(headers[0], _faults_of_vocabulary(headers[0]))
    for header in headers:
        check_weights(header)
        for tensor in header.tensors:
            if tensor.name.endswith("_norm.weight") and tensor.type != "F32":
                _refuse_first(
                    header, [f"the tensor {tensor.name!r} has the type {tensor.type}; norms are F32"]
                )


def _refuse_first(header: GgufHeader, faults: Iterable[str]) -> None:
    for fault in faults:
        raise InvalidModel(f"{header.path.name} cannot be used: {fault}")


def _faults_of_weights(header: GgufHeader) -> Iterator[str]:
    for tensor in header.tensors:
        place = header.data_offset + tensor.offset
        if place % _MEMORY_ALIGNMENT:
            yield (
                f"the tensor {tensor.name!r} is at byte {place}, not a multiple of {_MEMORY_ALIGNMENT}"
                f" (general.alignment is {header.alignment})"
            )
        if tensor.type in NEVER_STORED or (tensor.type in INTEGERS and _MULTIPLIED.match(tensor.name)):
            yield f"the tensor {tensor.name!r} has the type {tensor.type}, which weights cannot have"


def _faults_of_sizes(header: GgufHeader, architecture: str) -> Iterator[str]:
    blocks = header.integer(f"{architecture}.block_count")
    if blocks is not None and not 1 <= blocks <= _MAX_BLOCKS:
        yield f"it has {blocks} blocks; from 1 to {_MAX_BLOCKS} are possible"
    heads = header.integer(f"{architecture}.nextn_predict_layers") or 0
    if not 0 <= heads <= (blocks or 0):
        yield f"nextn_predict_layers is {heads}; it has {blocks or 0} blocks altogether"
    length = header.integer(f"{architecture}.context_length") or 0  # then llama.cpp takes one of its own
    if length == 1 or not 0 <= length <= _MAX_CONTEXT:
        yield f"its context_length is {length}; from 2 to {_MAX_CONTEXT} is possible"


def _faults_of_experts(header: GgufHeader, architecture: str) -> Iterator[str]:
    def number(key: str) -> int:
        """A number of experts: the largest, where a list has one for each block."""
        value = header.metadata.get(f"{architecture}.{key}", 0)
        values = getattr(value, "items", (value,))
        return max((each for each in values if isinstance(each, int)), default=0)

    count, used = number("expert_count"), number("expert_used_count")
    groups, used_groups = number("expert_group_count"), number("expert_group_used_count")
    if architecture.startswith("hunyuan") and count <= 1:  # llama.cpp takes one expert for none there
        return
    if not 0 <= count <= _MAX_EXPERTS:
        yield f"it has {count} experts; up to {_MAX_EXPERTS} are possible"
    if not (0 < used <= count if count else used == 0):
        yield f"it uses {used} of {count} experts"
    if groups and (groups >= count or (groups > 1 and (count % groups or not 0 < used_groups < groups))):
        yield f"it uses {used_groups} of {groups} groups of experts, and has {count} experts"


def _faults_of_numbers(header: GgufHeader, architecture: str) -> Iterator[str]:
    for key, least in (
        ("attention.layer_norm_rms_epsilon", math.ulp(0.0)),
        ("attention.layer_norm_epsilon", 0.0),
    ):
        value = header.metadata.get(f"{architecture}.{key}")
        if isinstance(value, float) and not (least <= value < math.inf):
            yield f"{key} is {value}, not a small number above 0"
    scaling = header.metadata.get(f"{architecture}.rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALING:
        yield f"rope.scaling.type is {scaling[:40]!r}, none of {', '.join(_ROPE_SCALING)}"


def _faults_of_vocabulary(header: GgufHeader) -> Iterator[str]:
    kind = header.metadata.get("tokenizer.ggml.model")
    if kind in ("none", "no_vocab"):
        yield f"its vocabulary is {kind!r}: no text can become tokens"
    tokens = header.vocabulary
    if tokens is None:
        return
    if tokens.distinct < tokens.count:
        yield (
            f"its vocabulary has {tokens.count} tokens, of which {tokens.count - tokens.distinct} are there twice"
            " (a token ends at its first NUL)"
        )
    if kind == "llama" and tokens.missing_bytes:
        yield (
            f"its vocabulary has no token for {len(tokens.missing_bytes)} of 256 bytes, the first of which is"
            f" <0x{tokens.missing_bytes[0]:02X}>"
        )


_PARTS: Final = (".lora_a", ".lora_b")
_ALPHA: Final = "adapter.lora.alpha"
_ACTIVATION: Final = "adapter.alora.invocation_tokens"


def check_adapter(path: Path, name: str, architecture: str) -> int:
    """The bytes of an adapter's tensors. Blocks. Raises InvalidModel if it is none for this architecture."""
    try:
        header = read_gguf_header(path)
        mismatch = _mismatch(header, architecture)
        if mismatch is None:
            return sum(tensor.n_bytes for tensor in header.tensors)
        reason = f"{path.name} {mismatch}."
    except InvalidModel as error:
        reason = error.message
    raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {reason}")


def _mismatch(header: GgufHeader, architecture: str) -> str | None:
    kind = header.text("general.type")
    if kind != "adapter" or header.text("adapter.type") != "lora":
        return f"is no LoRA adapter: its general.type is {(kind or 'missing')[:40]!r}"
    target = header.text("general.architecture")
    if target != architecture:
        known = (target or "missing")[:40]
        return f"is made for models of the architecture {known!r}, and this one is {architecture!r}"
    alpha = header.metadata.get(_ALPHA)
    if not isinstance(alpha, float) or not math.isfinite(alpha) or _ALPHA in header.doubles:
        return f"has no 32-bit number for the key {_ALPHA}"
    if _ACTIVATION in header.metadata:
        return "is an activated one (aLoRA), which begins to apply in the middle of a prompt: not supported"
    unsupported = next((tensor for tensor in header.tensors if tensor.type in NEVER_STORED | INTEGERS), None)
    if unsupported is not None:
        return f"has the tensor {unsupported.name[:80]!r} of the type {unsupported.type}, which weights cannot have"
    names = {tensor.name for tensor in header.tensors}
    for name in sorted(names):
        base, part = name[:-7], name[-7:]
        if part in _PARTS and all(base + each in names for each in _PARTS):
            continue
        if not name.endswith("_norm.weight"):
            return f"has the tensor {name[:80]!r}, which is not one of a pair of lora_a and lora_b"
    return None if names else "has no tensors"
