"""How much of a model goes to a device, and how large a context memory allows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# Compute buffers, the driver's own share and other programs: kept free on a device.
DEVICE_RESERVE_BYTES = 512 * 1024 * 1024
# Of the memory that is free once the weights are in place, the part that an automatic context may take.
CONTEXT_SHARE = 0.5
DEFAULT_N_CTX_LIMIT = 32_768
MIN_AUTO_N_CTX = 2_048


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


def automatic_parallel(n_ctx: int) -> int:
    """Sequences that run at once when the user said nothing: 256 tokens each at least, 8 at most."""
    return max(1, min(8, n_ctx // 256))
