"""The loader resolves automatic settings for the model and the device."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.engine.cache.sequence_memory import IDLE_CELLS, SLOW_COPY_IDLE_CELLS
from jan_serve.engine.loader import resolved
from jan_serve.ipc.messages import EngineSettings
from tests.support.fake_client import fake_facts


def settings_of(n_gpu_layers: int, **settings: Any) -> EngineSettings:
    return resolved(EngineSettings(**settings), fake_facts(n_gpu_layers=n_gpu_layers), 3)


def test_the_loaded_model_decides_lengths_and_counts() -> None:
    facts = fake_facts(n_ctx=256, parallel=2)
    settings = resolved(EngineSettings(cache_sequences=16, stream_share=0.5), facts, 3)
    assert (settings.n_ctx, settings.parallel, settings.cache_sequences) == (256, 2, 3)
    assert settings.stream_share == 0.5


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
