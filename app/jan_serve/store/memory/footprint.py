"""How much memory a model that is here will take, from its header and the settings it is loaded with. Pure; estimates.

A model that is not here yet is judged by the size of its files instead (`fit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jan_serve.core.kv_types import BYTES_PER_ELEMENT
from jan_serve.store.gguf.model_file import ModelFile

WANTED_N_CTX: Final = 8_192
"""Tokens of context that a model is given room for where the settings name no length: it takes less if it must."""
LEAST_N_CTX: Final = 2_048
_PROCESS_BYTES: Final = 75_000_000
"""The worker itself: the interpreter and its libraries."""
_VOCABULARY_ENTRY: Final = 800
"""Bytes for each token of the vocabulary: llama.cpp's tables, and those that constraints are enforced with."""
_ACTIVATIONS: Final = 32
"""float32 values per embedding element and token of a pass, over what ggml keeps alive at once."""
_OUTPUTS: Final = 64
"""Tokens of a pass whose logits are computed: those of the sequences that run, not of a whole prompt."""
_WORKING_SPACE: Final = 500_000_000
"""Bytes for compute buffers and the worker process."""
_CACHE_SHARE: Final = 0.15
"""Bytes of an 8,192-token cache for each byte of 4-bit weights: 0.1 to 0.2 for the models of the catalogue."""
_LARGEST_CACHE: Final = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a loaded model takes.

    context: the KV cache that it should have; least_context: the smallest that it is loaded with. working: compute
    buffers and the process. on_device: the part of all this that has to be on accelerators. mapped: the weights are
    pages of the file, which the system reports as available although they are needed.
    """

    weights: int
    context: int
    least_context: int
    working: int
    on_device: int = 0
    mapped: bool = True

    @property
    def total(self) -> int:
        """With the context that it should have."""
        return self.weights + self.context + self.working

    @property
    def least(self) -> int:
        """Less than this, and it cannot be loaded."""
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
    """The estimate, for a worker at work. n_ctx, gpu_layers: None where it decides by the free memory; gpu_layers -1 is
    all.
    """
    per_token = model.k_elements * BYTES_PER_ELEMENT.get(type_k, 2.0)
    per_token += model.v_elements * BYTES_PER_ELEMENT.get(type_v, 2.0)
    trained = model.n_ctx_train or LEAST_N_CTX
    wanted = n_ctx if n_ctx is not None else min(trained, WANTED_N_CTX)
    least = n_ctx if n_ctx is not None else min(trained, LEAST_N_CTX)
    logits_and_activations = 4 * (_OUTPUTS * model.n_vocab + n_ubatch * _ACTIVATIONS * model.n_embd)
    # The mask, in half precision for flash attention; without, in single, and the scores of all heads beside it.
    attention = n_ubatch * wanted * (2 if flash_attn else 4 * (1 + model.n_head))
    least_context = int(least * per_token)
    return Footprint(
        weights=model.tensor_bytes,
        context=int(wanted * per_token),
        least_context=least_context,
        working=_PROCESS_BYTES + _VOCABULARY_ENTRY * model.n_vocab + logits_and_activations + attention,
        on_device=_on_device(model, least_context, gpu_layers),
        mapped=mapped,
    )


def _on_device(model: ModelFile, context: int, gpu_layers: int | None) -> int:
    """Weights and cache of the layers that the settings put on accelerators, from the last, as llama.cpp counts."""
    if gpu_layers is None or gpu_layers == 0 or not model.layer_bytes:
        return 0
    n_layer = len(model.layer_bytes)
    n_there = n_layer + 1 if gpu_layers < 0 else min(gpu_layers, n_layer + 1)
    blocks = min(n_there, n_layer)
    weights = sum(model.layer_bytes[n_layer - blocks :]) + (model.other_bytes if n_there > n_layer else 0)
    return weights + context * blocks // n_layer


def memory_needed(file_bytes: int, bits: int = 4) -> int:
    """Bytes to run a model whose files have `file_bytes`, with a context of 8,192 tokens.

    bits: of its weights; the cache depends on the model's shape, not on how its weights are stored.
    """
    at_four_bits = file_bytes * 4 // bits if bits > 0 else file_bytes
    cache = min(_LARGEST_CACHE, int(at_four_bits * _CACHE_SHARE))
    return file_bytes + cache + _WORKING_SPACE
