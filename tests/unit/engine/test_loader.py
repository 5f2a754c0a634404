"""The loader resolves automatic settings for the model and the device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from jan_serve.engine.cache.sequence_memory import IDLE_CELLS, SLOW_COPY_IDLE_CELLS
from jan_serve.engine.loader import default_threads, resolved, state_files_key
from jan_serve.ipc.messages import EngineSettings, LoadModel
from tests.support.fake_client import fake_facts


def settings_of(n_gpu_layers: int, **settings: Any) -> EngineSettings:
    return resolved(EngineSettings(**settings), fake_facts(n_gpu_layers=n_gpu_layers), 3)


def test_the_loaded_model_decides_lengths_and_counts() -> None:
    facts = fake_facts(n_ctx=256, parallel=2)
    settings = resolved(EngineSettings(cache_sequences=16, stream_share=0.5), facts, 3)
    assert (settings.n_ctx, settings.parallel, settings.cache_sequences) == (256, 2, 3)
    assert settings.stream_share == 0.5


def test_a_tiny_model_gets_one_thread_and_others_the_physical_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu_count(*, logical: bool) -> int:
        return 8 if logical else 4

    def affinity(_pid: int) -> set[int]:
        return {0, 1, 2}

    monkeypatch.setattr(psutil, "cpu_count", cpu_count)
    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    assert default_threads(16 * 2**20 - 1) == 1
    assert default_threads(16 * 2**20) == 3


@pytest.mark.parametrize(
    ("n_gpu_layers", "settings", "cells"),
    [
        (0, {}, IDLE_CELLS),
        (0, {"flash_attn": "off"}, SLOW_COPY_IDLE_CELLS),
        (9, {}, SLOW_COPY_IDLE_CELLS),
        (9, {"idle_cells": 0}, 0),
        (0, {"idle_cells": 7000}, 7000),
    ],
)
def test_idle_cells_depend_on_the_cost_of_a_copy(
    n_gpu_layers: int, settings: dict[str, Any], cells: int
) -> None:
    assert settings_of(n_gpu_layers, **settings).idle_cells == cells


def test_states_under_other_rope_factors_have_other_files(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    load = LoadModel(path=str(path))
    keys = [state_files_key(load, factors) for factors in ("", "short", "long", "long")]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]
