"""What can be said of a LoRA adapter before a worker loads it: whether its header fits the model. Reads headers only.

Keys and names are those of llama.cpp's `llama-adapter.cpp`; whether each tensor fits is for llama.cpp to say.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from jan_serve.errors import InvalidModel
from jan_serve.store.gguf import GgufHeader, read_gguf_header

_PARTS: Final = (".lora_a", ".lora_b")
_ALPHA: Final = "adapter.lora.alpha"
_ACTIVATION: Final = "adapter.alora.invocation_tokens"


def check_adapter(path: Path, name: str, architecture: str) -> int:
    """Check the file of the adapter `name` for a model of this architecture; the bytes of its tensors. Blocks.

    Raises InvalidModel, which names the adapter.
    """
    try:
        header = read_gguf_header(path)
        reason = _mismatch(header, architecture)
    except InvalidModel as error:
        raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {error.message}") from None
    if reason is not None:
        raise InvalidModel(f"The LoRA adapter `{name}` cannot be used: {path.name} {reason}.")
    return sum(tensor.n_bytes for tensor in header.tensors)


def _mismatch(header: GgufHeader, architecture: str) -> str | None:
    kind = header.text("general.type")
    if kind != "adapter" or header.text("adapter.type") != "lora":
        return f"is no LoRA adapter: its general.type is {(kind or 'missing')[:40]!r}"
    own = header.text("general.architecture")
    if own != architecture:
        return f"is made for models of the architecture {(own or 'missing')[:40]!r}, and this one is {architecture!r}"
    alpha = header.metadata.get(_ALPHA)
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        return f"has no number for the key {_ALPHA}"
    if _ACTIVATION in header.metadata:
        return "is an activated one (aLoRA), which begins to apply in the middle of a prompt: not supported"
    names = {tensor.name for tensor in header.tensors}
    for name in sorted(names):
        base, part = name[:-7], name[-7:]
        if part in _PARTS and all(base + each in names for each in _PARTS):
            continue
        if not name.endswith("_norm.weight"):
            return f"has the tensor {name[:80]!r}, which is not one of a pair of lora_a and lora_b"
    return None if names else "has no tensors"
