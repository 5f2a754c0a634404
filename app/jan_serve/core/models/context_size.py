"""A model whose user set no `n_ctx` gets a default context, whose KV cache takes bytes by its types."""

from __future__ import annotations

from typing import Final

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
