"""How much of a model goes to a device, and how large a context memory allows."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jan_serve.errors import InsufficientMemory

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Compute buffers, the driver's own share and other programs: kept free on a device.
DEVICE_RESERVE_BYTES = 512 * 1024 * 1024
# Of the memory that is free once the weights are in fit_to_memory, the part that an automatic context may take.
CONTEXT_SHARE = 0.5
DEFAULT_N_CTX_LIMIT = 32_768
MIN_AUTO_N_CTX = 2_048
# A conversation with a system prompt: for less, layers stay in main memory.
WANTED_N_CTX = 8_192


def gpu_layers(layer_bytes: Sequence[int], other_bytes: int, kv_bytes_per_layer: int, free_bytes: int) -> int:
    """Layers that fit a device, in llama.cpp's counting: blocks from the last to the first, then the output layer.

    layer_bytes: weights of each block, first to last. other_bytes: embeddings and output. kv_bytes_per_layer: KV cache
    of the whole context in one block. Returns len(layer_bytes) + 1 when everything fits.
    """
    room = free_bytes - DEVICE_RESERVE_BYTES
    fitting = 0
    for size in reversed(layer_bytes):
        if room < size + kv_bytes_per_layer:
            return fitting
        room -= size + kv_bytes_per_layer
        fitting += 1
    return fitting + 1 if room >= other_bytes else fitting


def automatic_n_ctx(
    n_ctx_train: int, kv_bytes_per_token: int, free_bytes: int, most_bytes: int | None = None
) -> int:
    """Context length, in tokens, for a model whose user asked for none: as trained, as far as memory allows.

    free_bytes: what is free beside the weights. most_bytes: a limit beside that; None is none.
    """
    room = CONTEXT_SHARE * free_bytes
    if most_bytes is not None:
        room = min(room, most_bytes)
    n_ctx = min(n_ctx_train or MIN_AUTO_N_CTX, DEFAULT_N_CTX_LIMIT)
    while n_ctx > MIN_AUTO_N_CTX and n_ctx * kv_bytes_per_token > room:
        n_ctx = max(MIN_AUTO_N_CTX, n_ctx // 2)
    return n_ctx


def with_shorter_context(create: Callable[[int], T], n_ctx: int, *, least: int) -> tuple[T, int]:
    """What `create` makes of the first length that fits, of n_ctx, a half, a quarter … of it, and that length.

    What is free is an estimate, and other programs take from it too. Raises InsufficientMemory where `least` does not
    fit.
    """
    while True:
        try:
            return create(n_ctx), n_ctx
        except InsufficientMemory:
            if n_ctx <= least:
                raise
            n_ctx = max(least, n_ctx // 2)
            logger.warning("not enough memory: the context has %d tokens", n_ctx)


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Layers on the device, in llama.cpp's counting, and the context length; None where main memory decides that."""

    n_gpu_layers: int
    n_ctx: int | None


def fit_to_memory(
    layer_bytes: Sequence[int],
    other_bytes: int,
    kv_bytes_per_token: int,
    free_bytes: int,
    *,
    n_ctx: int | None,
    n_ctx_train: int,
    n_gpu_layers: int | None = None,
    most_bytes: int | None = None,
) -> MemoryFit:
    """What goes to a device with `free_bytes`, together with the cache of the layers that go there.

    n_ctx, n_gpu_layers: what the user asked for; None is automatic. All layers with a shorter context come before fewer
    layers with a longer one, down to WANTED_N_CTX. most_bytes: of an automatic context.
    """
    everything = len(layer_bytes) + 1
    lengths = [n_ctx] if n_ctx is not None else _lengths(n_ctx_train, kv_bytes_per_token, most_bytes)
    shortest = n_ctx if n_ctx is not None else min(WANTED_N_CTX, lengths[0])
    for length in lengths:
        kv_per_layer = length * kv_bytes_per_token // max(1, len(layer_bytes))
        fitting = gpu_layers(layer_bytes, other_bytes, kv_per_layer, free_bytes)
        if fitting >= (everything if n_gpu_layers is None else min(n_gpu_layers, everything)):
            return MemoryFit(fitting if n_gpu_layers is None else n_gpu_layers, length)
        if length <= shortest:
            break
    if n_gpu_layers is not None:
        return MemoryFit(n_gpu_layers, n_ctx or lengths[-1])
    kv_per_layer = shortest * kv_bytes_per_token // max(1, len(layer_bytes))
    fitting = gpu_layers(layer_bytes, other_bytes, kv_per_layer, free_bytes)
    return MemoryFit(fitting, shortest if fitting else n_ctx)


def _lengths(n_ctx_train: int, kv_bytes_per_token: int, most_bytes: int | None) -> list[int]:
    """Automatic lengths, the longest first; each half of the one before."""
    lengths = [automatic_n_ctx(n_ctx_train, kv_bytes_per_token, sys.maxsize, most_bytes)]
    while lengths[-1] > MIN_AUTO_N_CTX:
        lengths.append(max(MIN_AUTO_N_CTX, lengths[-1] // 2))
    return lengths


def automatic_parallel(n_ctx: int) -> int:
    """Sequences that run at once when the user said nothing: 256 tokens each at least, 8 at most."""
    return max(1, min(8, n_ctx // 256))
