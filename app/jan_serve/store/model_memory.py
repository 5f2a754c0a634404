"""Estimates the memory of a model from its header, or its files' size, and how much of the free memory it may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core.placement import BYTES_PER_ELEMENT, MIN_DEFAULT_N_CTX, WANTED_N_CTX
from jan_serve.store.gguf.model_file import ModelFile

_PROCESS_BYTES: Final = 75_000_000
"""The worker itself: the interpreter and its libraries."""
_VOCABULARY_ENTRY: Final = 800
"""Bytes per token of the vocabulary: llama.cpp's tables, and those of the constraint engine."""
_ACTIVATIONS: Final = 32
"""float32 values per embedding element and token of a pass, for the tensors that ggml keeps alive at once."""
_OUTPUTS: Final = 64
"""Tokens of a pass with logits: one per running sequence, not per prompt token."""
_WORKING_SPACE: Final = 500_000_000
"""Bytes for compute buffers and the worker process."""
_CACHE_SHARE: Final = 0.15
"""Bytes of an 8,192-token cache per byte of 4-bit weights: 0.1 to 0.2 for the models of the catalogue."""
_MAX_CACHE: Final = 4_000_000_000


class Footprint(msgspec.Struct, frozen=True):
    """Bytes that a loaded model takes. context: the desired KV cache; least_context: the smallest one to load with.
    working: compute buffers and the process. on_device: the part of these that must be on accelerators. mapped: the
    weights are pages of the file, which the system reports as available although they are needed."""

    weights: int
    context: int
    least_context: int
    working: int
    on_device: int = 0
    mapped: bool = True

    @property
    def total(self) -> int:
        return self.weights + self.context + self.working

    @property
    def least(self) -> int:
        return self.weights + self.least_context + self.working


def footprint(
    model: ModelFile,
    *,
    n_ctx: int | None,
    type_k: str,
    type_v: str,
    n_ubatch: int,
    gpu_layers: int | None,
    mapped: bool,
    flash_attn: bool = True,
) -> Footprint:
    """For a busy worker. n_ctx, gpu_layers: None if the worker decides by free memory; -1 layers are all."""
    per_token = model.k_elements * BYTES_PER_ELEMENT.get(type_k, 2.0)
    per_token += model.v_elements * BYTES_PER_ELEMENT.get(type_v, 2.0)
    trained = model.n_ctx_train or MIN_DEFAULT_N_CTX
    wanted = n_ctx if n_ctx is not None else min(trained, WANTED_N_CTX)
    min_n_ctx = n_ctx if n_ctx is not None else min(trained, MIN_DEFAULT_N_CTX)
    logits_and_activations = 4 * (_OUTPUTS * model.n_vocab + n_ubatch * _ACTIVATIONS * model.n_embd)
    # The mask in half precision for flash attention; else in single precision, plus the scores of all heads.
    attention = n_ubatch * wanted * (2 if flash_attn else 4 * (1 + model.n_head))
    least_context = int(min_n_ctx * per_token)
    return Footprint(
        weights=model.tensor_bytes,
        context=int(wanted * per_token),
        least_context=least_context,
        working=_PROCESS_BYTES + _VOCABULARY_ENTRY * model.n_vocab + logits_and_activations + attention,
        on_device=_on_device(model, least_context, gpu_layers),
        mapped=mapped,
    )


def _on_device(model: ModelFile, context: int, gpu_layers: int | None) -> int:
    """As llama.cpp counts, from the output layer. Experts do not count: main memory takes what does not fit."""
    layers = model.parts.layers
    if gpu_layers is None or gpu_layers == 0 or not layers:
        return 0
    blocks = len(layers) if gpu_layers < 0 else min(gpu_layers - 1, len(layers))
    weights = sum(layer.dense for layer in layers[len(layers) - blocks :]) + model.parts.output_bytes
    return weights + context * blocks // len(layers)


def memory_needed(file_bytes: int, bits: int = 4) -> int:
    """With a context of 8,192 tokens. bits: per weight; the cache depends on the model's shape, not on them."""
    at_four_bits = file_bytes * 4 // bits if bits > 0 else file_bytes
    cache = min(_MAX_CACHE, int(at_four_bits * _CACHE_SHARE))
    return file_bytes + cache + _WORKING_SPACE


_KEPT_FREE: Final = 0.1
"""Share of free main memory left to other programs."""


class FreeMemory(msgspec.Struct, frozen=True):
    """Free bytes. accelerators: of each device with dedicated memory."""

    main: int
    accelerators: Sequence[int] = ()

    @property
    def usable(self) -> int:
        """Bytes that a model may use. Its layers are split between accelerators and main memory, so these add up."""
        return int(self.main * (1 - _KEPT_FREE)) + sum(self.accelerators)
