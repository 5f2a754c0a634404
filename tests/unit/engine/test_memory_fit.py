"""Layers and context that fit a device, and the default parallelism."""

from __future__ import annotations

import pytest

from jan_serve.core.default_context import MIN_DEFAULT_N_CTX
from jan_serve.engine.memory_fit import (
    DEVICE_RESERVE_BYTES,
    MemoryFit,
    default_parallel,
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


def test_blocks_are_fitted_from_the_last_to_the_first() -> None:
    assert gpu_layers([500, 100, 100], 0, 0, DEVICE_RESERVE_BYTES + 250) == 2
    assert gpu_layers([100, 100, 500], 0, 0, DEVICE_RESERVE_BYTES + 250) == 0


def test_a_model_without_known_blocks() -> None:
    assert gpu_layers([], 10, 0, DEVICE_RESERVE_BYTES + 10) == 1
    assert gpu_layers([], 10, 0, DEVICE_RESERVE_BYTES + 9) == 0


@pytest.mark.parametrize(("n_ctx", "expected"), [(32, 1), (255, 1), (512, 2), (2048, 8), (131_072, 8)])
def test_default_parallel(n_ctx: int, expected: int) -> None:
    assert default_parallel(n_ctx) == expected


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
        # Below that, fewer layers are preferred to a shorter context.
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
        # As requested, with the smallest cache: llama.cpp reports whether it fits.
        (0, None, 131_072, 5, MemoryFit(5, MIN_DEFAULT_N_CTX)),
        (needed(32_768), None, 0, None, MemoryFit(5, MIN_DEFAULT_N_CTX)),
    ],
)
def test_layers_and_context_are_fitted_together(
    free: int, n_ctx: int | None, n_ctx_train: int, layers: int | None, expected: MemoryFit
) -> None:
    fitted = fit_to_memory(
        [1000] * 4, 10, KV, free, n_ctx=n_ctx, n_ctx_train=n_ctx_train, n_gpu_layers=layers
    )
    assert fitted == expected


def test_a_default_context_on_a_device_keeps_to_its_limit() -> None:
    fitted = fit_to_memory(
        [1000] * 4, 10, KV, 1 << 40, n_ctx=None, n_ctx_train=131_072, max_bytes=10_000 * KV
    )
    assert fitted == MemoryFit(5, 8_192)


@pytest.mark.parametrize(
    ("fits", "min_n_ctx", "tried", "made"),
    [
        (8192, 2048, [8192], 8192),
        (5000, 2048, [8192, 4096], 4096),
        (3000, 3000, [8192, 4096, 3000], 3000),  # never below the minimum
        (100, 2048, [8192, 4096, 2048], None),
        (100, 8192, [8192], None),  # the user's own length is not cut
    ],
)
def test_a_context_that_does_not_fit_is_retried_shorter(
    fits: int, min_n_ctx: int, tried: list[int], made: int | None
) -> None:
    lengths: list[int] = []

    def create(n_ctx: int) -> str:
        lengths.append(n_ctx)
        if n_ctx > fits:
            raise InsufficientMemory("too large")
        return f"context of {n_ctx}"

    if made is None:
        with pytest.raises(InsufficientMemory, match="too large"):
            with_shorter_context(create, 8192, min_n_ctx=min_n_ctx)
    else:
        assert with_shorter_context(create, 8192, min_n_ctx=min_n_ctx) == (f"context of {made}", made)
    assert lengths == tried
