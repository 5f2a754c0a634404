"""Offload: layers that fit a device, automatic context and parallelism."""

from __future__ import annotations

import pytest

from jan_serve.engine.memory_fit import (
    CONTEXT_SHARE,
    DEFAULT_N_CTX_LIMIT,
    DEVICE_RESERVE_BYTES,
    MIN_AUTO_N_CTX,
    MemoryFit,
    automatic_n_ctx,
    automatic_parallel,
    fit_to_memory,
    gpu_layers,
    with_shorter_context,
)
from jan_serve.errors import InsufficientMemory


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (-1, 0),
        (0, 0),
        (109, 0),
        (110, 1),
        (329, 2),
        (330, 3),
        (349, 3),
        (350, 4),  # the output layer too
        (10_000, 4),
    ],
)
def test_layers_that_fit(room: int, expected: int) -> None:
    """Three blocks of 100 with 10 of KV cache each, and 20 for the rest."""
    assert gpu_layers([100, 100, 100], 20, 10, DEVICE_RESERVE_BYTES + room) == expected


def test_blocks_are_placed_from_the_last_to_the_first() -> None:
    assert gpu_layers([500, 100, 100], 0, 0, DEVICE_RESERVE_BYTES + 250) == 2
    assert gpu_layers([100, 100, 500], 0, 0, DEVICE_RESERVE_BYTES + 250) == 0


def test_a_model_without_known_blocks() -> None:
    assert gpu_layers([], 10, 0, DEVICE_RESERVE_BYTES + 10) == 1
    assert gpu_layers([], 10, 0, DEVICE_RESERVE_BYTES + 9) == 0


@pytest.mark.parametrize(
    ("n_ctx_train", "free_tokens", "expected"),
    [
        (4096, 10**6, 4096),
        (131_072, 10**6, DEFAULT_N_CTX_LIMIT),
        (131_072, 16_384, 16_384),
        (131_072, 16_383, 8_192),
        (131_072, 0, MIN_AUTO_N_CTX),
        (0, 10**6, MIN_AUTO_N_CTX),
        (512, 0, 512),
        (3000, 2500, MIN_AUTO_N_CTX),
    ],
)
def test_automatic_context(n_ctx_train: int, free_tokens: int, expected: int) -> None:
    """free_tokens: the tokens whose cells the context's share of the memory holds."""
    per_token = 1000
    free_bytes = int(free_tokens * per_token / CONTEXT_SHARE)
    assert automatic_n_ctx(n_ctx_train, per_token, free_bytes) == expected
    assert automatic_n_ctx(n_ctx_train, per_token, free_bytes, 1 << 60) == expected


@pytest.mark.parametrize(
    ("most_bytes", "expected"), [(8192 * 10, 8192), (8191 * 10, 4096), (0, 2048), (1 << 40, 32_768)]
)
def test_an_automatic_context_keeps_to_what_it_may_take(most_bytes: int, expected: int) -> None:
    assert automatic_n_ctx(131_072, 10, 1 << 40, most_bytes) == expected


@pytest.mark.parametrize(("n_ctx", "expected"), [(32, 1), (255, 1), (512, 2), (2048, 8), (131_072, 8)])
def test_automatic_parallel(n_ctx: int, expected: int) -> None:
    assert automatic_parallel(n_ctx) == expected


KV = 4
"""Bytes of a token in the cache: one for each of the four blocks."""


def needed(length: int, blocks: int = 4, rest: int = 10) -> int:
    """Memory for so many blocks of 1,000 bytes with a context of `length`, and the rest of the weights."""
    return DEVICE_RESERVE_BYTES + blocks * (1000 + length) + rest


@pytest.mark.parametrize(
    ("free", "n_ctx", "n_ctx_train", "layers", "expected"),
    [
        (needed(32_768), None, 131_072, None, MemoryFit(5, 32_768)),
        (needed(32_768) - 1, None, 131_072, None, MemoryFit(5, 16_384)),
        (needed(8_192), None, 131_072, None, MemoryFit(5, 8_192)),
        # Below that, fewer layers come before a shorter context.
        (needed(8_192) - 1, None, 131_072, None, MemoryFit(4, 8_192)),
        (needed(8_192, 2, 0), None, 131_072, None, MemoryFit(2, 8_192)),
        (needed(8_192, 1, 0) - 1, None, 131_072, None, MemoryFit(0, None)),
        (0, 4_096, 131_072, None, MemoryFit(0, 4_096)),
        (needed(4_096), None, 4_096, None, MemoryFit(5, 4_096)),
        (needed(4_096) - 1, None, 4_096, None, MemoryFit(4, 4_096)),
        (needed(40_000), 40_000, 131_072, None, MemoryFit(5, 40_000)),
        (needed(40_000, 3, 0), 40_000, 131_072, None, MemoryFit(3, 40_000)),
        (needed(16_384), None, 131_072, 5, MemoryFit(5, 16_384)),
        (needed(16_384, 2, 0), None, 131_072, 2, MemoryFit(2, 16_384)),
        (needed(16_384, 2, 0), 1_000, 131_072, 2, MemoryFit(2, 1_000)),
        # As asked for, and with the least of a cache: llama.cpp says whether it fits.
        (0, None, 131_072, 5, MemoryFit(5, MIN_AUTO_N_CTX)),
        (needed(32_768), None, 0, None, MemoryFit(5, MIN_AUTO_N_CTX)),
    ],
)
def test_layers_and_context_are_placed_together(
    free: int, n_ctx: int | None, n_ctx_train: int, layers: int | None, expected: MemoryFit
) -> None:
    placed = fit_to_memory(
        [1000] * 4, 10, KV, free, n_ctx=n_ctx, n_ctx_train=n_ctx_train, n_gpu_layers=layers
    )
    assert placed == expected


def test_a_context_on_a_device_keeps_to_what_it_may_take() -> None:
    placed = fit_to_memory(
        [1000] * 4, 10, KV, 1 << 40, n_ctx=None, n_ctx_train=131_072, most_bytes=10_000 * KV
    )
    assert placed == MemoryFit(5, 8_192)


@pytest.mark.parametrize(
    ("fits", "least", "tried", "made"),
    [
        (8192, 2048, [8192], 8192),
        (5000, 2048, [8192, 4096], 4096),
        (3000, 3000, [8192, 4096, 3000], 3000),  # never below the least
        (100, 2048, [8192, 4096, 2048], None),
        (100, 8192, [8192], None),  # the user's own length is not cut
    ],
)
def test_a_context_that_does_not_fit_is_tried_shorter(
    fits: int, least: int, tried: list[int], made: int | None
) -> None:
    asked: list[int] = []

    def create(n_ctx: int) -> str:
        asked.append(n_ctx)
        if n_ctx > fits:
            raise InsufficientMemory("too large")
        return f"context of {n_ctx}"

    if made is None:
        with pytest.raises(InsufficientMemory, match="too large"):
            with_shorter_context(create, 8192, least=least)
    else:
        assert with_shorter_context(create, 8192, least=least) == (f"context of {made}", made)
    assert asked == tried
