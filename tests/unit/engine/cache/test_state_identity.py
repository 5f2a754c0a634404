"""Which files of states are a model's."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.engine.cache.state_identity import rope_factors, state_files_key
from jan_serve.ipc.messages import LoadModel


def test_states_under_other_rope_factors_have_other_files(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    load = LoadModel(path=str(path))
    keys = [state_files_key(load, factors) for factors in ("", "short", "long", "long")]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]


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
