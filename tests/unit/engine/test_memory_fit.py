"""A context that fits, and the default parallelism."""

from __future__ import annotations

import pytest

from jan_serve.engine.memory_fit import default_parallel, with_shorter_context
from jan_serve.errors import InsufficientMemory


@pytest.mark.parametrize(("n_ctx", "expected"), [(32, 1), (255, 1), (512, 2), (2048, 8), (131_072, 8)])
def test_default_parallel(n_ctx: int, expected: int) -> None:
    assert default_parallel(n_ctx) == expected


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
