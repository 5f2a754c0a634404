"""Checks the header of a LoRA adapter before a worker loads it.

Keys and names are those of llama.cpp's `llama-adapter.cpp`, which checks the shape of each tensor itself.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Final

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf.ggml_types import INTEGERS, NEVER_STORED
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header

_PARTS: Final = (".lora_a", ".lora_b")
_ALPHA: Final = "adapter.lora.alpha"
_FLOAT32: Final = 6
_ACTIVATION: Final = "adapter.alora.invocation_tokens"


def check_adapter(path: Path, name: str, architecture: str) -> int:
    """Check an adapter for a model of this architecture and return the bytes of its tensors. Blocks.

    Raises InvalidModel, which names the adapter.
    """
    try:
        header = read_gguf_header(path)
        reason = _mismatch(header, architecture)
    except InvalidModel as error:
        raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {error.message}") from None
    except OSError as error:
        raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {error.strerror}") from None
    if reason is not None:
        raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {path.name} {reason}.")
    return sum(tensor.n_bytes for tensor in header.tensors)


def _mismatch(header: GgufHeader, architecture: str) -> str | None:
    kind = header.text("general.type")
    if kind != "adapter" or header.text("adapter.type") != "lora":
        return f"is no LoRA adapter: its general.type is {(kind or 'missing')[:40]!r}"
    target = header.text("general.architecture")
    if target != architecture:
        known = (target or "missing")[:40]
        return f"is made for models of the architecture {known!r}, and this one is {architecture!r}"
    alpha = header.metadata.get(_ALPHA)
    if not isinstance(alpha, float) or not math.isfinite(alpha) or not _is_float32(header, _ALPHA):
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


def _is_float32(header: GgufHeader, key: str) -> bool:
    """Whether a number is a float32: llama.cpp aborts on any other type."""
    with header.path.open("rb") as file:
        raw = file.read(header.data_offset)
    name = key.encode()
    at = raw.find(struct.pack("<Q", len(name)) + name)
    return at >= 0 and raw[at + 8 + len(name) :][:4] == struct.pack("<I", _FLOAT32)
