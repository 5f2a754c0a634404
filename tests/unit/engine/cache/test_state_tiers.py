"""Which files of states are a model's."""

from __future__ import annotations

from pathlib import Path

from jan_serve.engine.cache.state_tiers import state_files_key
from jan_serve.ipc.messages import LoadModel


def test_states_under_other_rope_factors_have_other_files(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    load = LoadModel(path=str(path))
    keys = [state_files_key(load, factors) for factors in ("", "short", "long", "long")]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]
