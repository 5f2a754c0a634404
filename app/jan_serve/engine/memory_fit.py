"""Fits a model into memory: device placement (how many layers go to a device), and the context length."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from jan_serve.core.default_context import MIN_DEFAULT_N_CTX, WANTED_N_CTX, default_n_ctx
from jan_serve.errors import InsufficientMemory

T = TypeVar("T")
logger = logging.getLogger(__name__)

DEVICE_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""Kept free on a device for compute buffers, the driver and other programs."""


def gpu_layers(layer_bytes: Sequence[int], other_bytes: int, kv_bytes_per_layer: int, free_bytes: int) -> int:
    """Layers that fit a device, in llama.cpp's counting: blocks from the last to the first, then the output layer.

    layer_bytes: weights of each block, first to last. other_bytes: embeddings and output. kv_bytes_per_layer: KV cache
    of the whole context in one block. Returns len(layer_bytes) + 1 if everything fits.
    """
    room = free_bytes - DEVICE_RESERVE_BYTES
    fitting = 0
    for size in reversed(layer_bytes):
        if room < size + kv_bytes_per_layer:
            return fitting
        room -= size + kv_bytes_per_layer
        fitting += 1
    return fitting + 1 if room >= other_bytes else fitting


def with_shorter_context(create: Callable[[int], T], n_ctx: int, *, min_n_ctx: int) -> tuple[T, int]:
    """Call `create` with n_ctx, then with half of it, and so on, until it fits. Returns its result and that length.

    Free memory is an estimate, and other programs allocate too. Raises InsufficientMemory if `min_n_ctx` does not fit.
    """
    while True:
        try:
            return create(n_ctx), n_ctx
        except InsufficientMemory:
            if n_ctx <= min_n_ctx:
                raise
            n_ctx = max(min_n_ctx, n_ctx // 2)
            logger.warning("not enough memory: trying a context of %d tokens", n_ctx)


class MemoryFit(msgspec.Struct, frozen=True):
    """Layers on the device, in llama.cpp's counting, and the context length; None if main memory decides the length."""

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
    max_bytes: int | None = None,
) -> MemoryFit:
    """Fit layers and their part of the KV cache into a device with `free_bytes`.

    n_ctx, n_gpu_layers: set by the user; None is automatic. A shorter context, down to WANTED_N_CTX, is preferred to
    fewer layers. max_bytes: of the KV cache of a default context.
    """
    everything = len(layer_bytes) + 1
    lengths = [n_ctx] if n_ctx is not None else _default_lengths(n_ctx_train, kv_bytes_per_token, max_bytes)
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


def _default_lengths(n_ctx_train: int, kv_bytes_per_token: int, max_bytes: int | None) -> list[int]:
    """Default context lengths, longest first; each is half of the previous one."""
    lengths = [default_n_ctx(n_ctx_train, kv_bytes_per_token, sys.maxsize, max_bytes)]
    while lengths[-1] > MIN_DEFAULT_N_CTX:
        lengths.append(max(MIN_DEFAULT_N_CTX, lengths[-1] // 2))
    return lengths


def default_parallel(n_ctx: int) -> int:
    """Default number of parallel sequences: one per 256 tokens of context, at most 8."""
    return max(1, min(8, n_ctx // 256))
