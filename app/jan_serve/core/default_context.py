"""The default context size: tokens of a model whose user set no `n_ctx`."""

from __future__ import annotations

from typing import Final

MAX_DEFAULT_N_CTX: Final = 32_768
"""However long the context that the model was trained for."""
MIN_DEFAULT_N_CTX: Final = 2_048
"""However little memory is free; less only if the model was trained for less."""
WANTED_N_CTX: Final = 8_192
"""Enough for a conversation with a system prompt: only for a shorter context do fewer layers go to the device."""
CONTEXT_SHARE: Final = 0.5
"""Of the memory that is free beside the weights, the part that a default context may take."""


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
