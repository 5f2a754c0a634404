"""The parts of a model and their sizes, the context that fits, and on which device each part goes."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec


class LayerParts(msgspec.Struct, frozen=True, array_like=True):
    """A block. Sizes in bytes.

    dense: the weights that each token reads (attention, norms, router, shared experts). experts: of a mixture, of
    which a token reads a few. k_elements, v_elements: of one token in the KV cache. state_elements: float32 values of a
    sequence's recurrent state.
    """

    dense: int
    experts: int = 0
    k_elements: int = 0
    v_elements: int = 0
    state_elements: int = 0

    @property
    def weights(self) -> int:
        return self.dense + self.experts


class ModelParts(msgspec.Struct, frozen=True):
    """layers: first to last. Sizes in bytes.

    input_bytes: the token embeddings and all else that is read in main memory. output_bytes: the output layer; with
    tied_output it is the token embeddings, which take main memory once, and a device has a copy.
    largest_tensor: of the blocks. width: the most values that a token has at once within a block.
    n_ahead: of the last layers, those that predict further tokens (MTP), if their tensors are there. They are empty
    unless they are to be loaded.
    pinned: weights that the user's patterns put on a device, by its name; no other size includes them.
    """

    layers: tuple[LayerParts, ...] = ()
    input_bytes: int = 0
    output_bytes: int = 0
    tied_output: bool = False
    largest_tensor: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    n_embd: int = 0
    n_vocab: int = 0
    n_head: int = 0
    width: int = 0
    pinned: tuple[tuple[str, int], ...] = ()
    n_ahead: int = 0

    @property
    def weights(self) -> int:
        output = 0 if self.tied_output else self.output_bytes
        return (
            sum(layer.weights for layer in self.layers)
            + self.input_bytes
            + output
            + sum(size for _, size in self.pinned)
        )

    @property
    def share_of_experts(self) -> float:
        """Share of a mixture's experts that a token reads."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the weights that each token reads."""
        dense = sum(layer.dense for layer in self.layers) + self.output_bytes
        dense += sum(size for _, size in self.pinned)
        return dense + round(self.share_of_experts * sum(layer.experts for layer in self.layers))


SplitMode = Literal["none", "layer", "row"]


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user decides. None or empty: automatic.

    n_gpu_layers: blocks from the last one and the output layer; -1 is all. n_cpu_moe: the experts of so many first
    blocks stay in main memory. tensor_split: proportions of layers on each device. main_gpu: the index of the only
    device (split_mode none) or of the one with small tensors (row). override_tensor: (regular expression, device), the
    first that matches counts.
    """

    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int = 0
    override_tensor: tuple[tuple[str, str], ...] = ()
    require_accelerator: bool = False


def parse_override(text: str) -> tuple[str, str]:
    """REGEX=DEVICE, taken apart. Raises ValueError."""
    pattern, _, device = text.rpartition("=")
    if not pattern or not device:
        raise ValueError(f"{text!r} is not of the form REGEX=DEVICE")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern, device


class LlamaPlacement(msgspec.Struct, frozen=True):
    """devices: by name, in the order in which they take layers. tensor_split: layers of each, as counts or proportions.

    overrides: (regular expression, device) of tensors. None of these: everything in main memory.
    """

    n_gpu_layers: int = 0
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int = 0
    overrides: tuple[tuple[str, str], ...] = ()


class DeviceShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one device holds. Sizes in bytes.

    kind: gpu, igpu, rpc or cpu (main memory). memory: of an accelerator what is free; of main memory all of it, with
    what an igpu may take. first, last: its blocks, None without any; output: also the output layer. experts_first,
    experts_last: the blocks whose experts it holds. weights, cache, compute: as planned. allocated: as llama.cpp
    reports after the load; 0 if it reports nothing.
    """

    device: str
    kind: str
    memory: int
    weights: int
    cache: int
    compute: int
    first: int | None = None
    last: int | None = None
    output: bool = False
    experts_first: int | None = None
    experts_last: int | None = None
    allocated: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute


MAX_DEFAULT_N_CTX: Final = 32_768
"""However long the context that the model was trained for."""
MIN_DEFAULT_N_CTX: Final = 2_048
"""However little memory is free; less only if the model was trained for less."""
WANTED_N_CTX: Final = 8_192
"""Enough for a conversation with a system prompt: only for a shorter context do fewer layers go to the device."""
CONTEXT_SHARE: Final = 0.5
"""Share that a default context may take of the memory that is free beside the weights."""


def default_n_ctx(
    n_ctx_train: int, kv_bytes_per_token: int, free_bytes: int, max_bytes: int | None = None
) -> int:
    """The trained length, at most MAX_DEFAULT_N_CTX, halved until its KV cache fits.

    free_bytes: free beside the weights. max_bytes: a further limit of the KV cache; None: no limit.
    """
    room = CONTEXT_SHARE * free_bytes
    if max_bytes is not None:
        room = min(room, max_bytes)
    n_ctx = min(n_ctx_train or MIN_DEFAULT_N_CTX, MAX_DEFAULT_N_CTX)
    while n_ctx > MIN_DEFAULT_N_CTX and n_ctx * kv_bytes_per_token > room:
        n_ctx = max(MIN_DEFAULT_N_CTX, n_ctx // 2)
    return n_ctx


BYTES_PER_ELEMENT: Final = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Bytes of an element by llama.cpp's name of its type; blocks of 32 elements include their scales."""


def is_quantised(kv_type: str) -> bool:
    return kv_type not in ("f32", "f16", "bf16")
