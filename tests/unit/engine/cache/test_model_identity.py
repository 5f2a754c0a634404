"""What identifies a model in states of its sequences."""

from __future__ import annotations

import pytest

from jan_serve.engine.cache.model_identity import rope_factors

PHI = {"general.architecture": "phi3", "phi3.rope.scaling.original_context_length": "4096"}


@pytest.mark.parametrize(
    ("metadata", "n_ctx", "factors"),
    [
        (PHI, 4096, "short"),
        (PHI, 4097, "long"),
        ({**PHI, "general.architecture": "llama"}, 8192, ""),
        ({"general.architecture": "phi3"}, 8192, ""),
        ({}, 8192, ""),
    ],
)
def test_the_length_of_the_context_decides_on_rope_factors(
    metadata: dict[str, str], n_ctx: int, factors: str
) -> None:
    assert rope_factors(metadata, n_ctx) == factors
