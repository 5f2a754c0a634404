"""The default context size."""

from __future__ import annotations

from typing import get_args

import pytest

from jan_serve.config.model_options import KvType
from jan_serve.core.placement import (
    BYTES_PER_ELEMENT,
    CONTEXT_SHARE,
    MAX_DEFAULT_N_CTX,
    MIN_DEFAULT_N_CTX,
    default_n_ctx,
)
from jan_serve.engine.llama.context import KV_TYPES


@pytest.mark.parametrize(
    ("n_ctx_train", "free_tokens", "expected"),
    [
        (4096, 10**6, 4096),
        (131_072, 10**6, MAX_DEFAULT_N_CTX),
        (131_072, 16_384, 16_384),
        (131_072, 16_383, 8_192),
        (131_072, 0, MIN_DEFAULT_N_CTX),
        (0, 10**6, MIN_DEFAULT_N_CTX),
        (512, 0, 512),
        (3000, 2500, MIN_DEFAULT_N_CTX),
    ],
)
def test_the_default_is_the_trained_length_as_far_as_memory_allows(
    n_ctx_train: int, free_tokens: int, expected: int
) -> None:
    """free_tokens: the tokens whose cells the context's share of the memory holds."""
    per_token = 1000
    free_bytes = int(free_tokens * per_token / CONTEXT_SHARE)
    assert default_n_ctx(n_ctx_train, per_token, free_bytes) == expected
    assert default_n_ctx(n_ctx_train, per_token, free_bytes, 1 << 60) == expected


@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(8192 * 10, 8192), (8191 * 10, 4096), (0, 2048), (1 << 40, 32_768)]
)
def test_the_default_keeps_to_a_limit_in_bytes(max_bytes: int, expected: int) -> None:
    assert default_n_ctx(131_072, 10, 1 << 40, max_bytes) == expected


def test_every_type_that_can_be_set_can_be_loaded_and_counted() -> None:
    assert set(get_args(KvType)) == KV_TYPES.keys() == BYTES_PER_ELEMENT.keys()
