"""What the settings and the device of a loaded model decide about its steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jan_serve.engine.cache.sequence_memory import COPIED_SLOWLY_IDLE_CELLS, IDLE_CELLS
from jan_serve.engine.loader import LoadedModel
from jan_serve.ipc.messages import EngineSettings


def loaded(n_gpu_layers: int, **settings: Any) -> LoadedModel:
    nothing = cast(Any, None)
    facts = cast(Any, SimpleNamespace(n_gpu_layers=n_gpu_layers))
    return LoadedModel(nothing, None, nothing, facts, EngineSettings(**settings), 0, nothing, nothing)


@pytest.mark.parametrize(
    ("n_gpu_layers", "settings", "cells"),
    [
        (0, {}, IDLE_CELLS),
        (0, {"flash_attn": "off"}, COPIED_SLOWLY_IDLE_CELLS),
        (9, {}, COPIED_SLOWLY_IDLE_CELLS),
        (9, {"idle_cells": 0}, 0),
        (0, {"idle_cells": 7000}, 7000),
    ],
)
def test_cells_that_finished_sequences_may_keep(
    n_gpu_layers: int, settings: dict[str, Any], cells: int
) -> None:
    assert loaded(n_gpu_layers, **settings).idle_cells == cells


@pytest.mark.parametrize(
    ("n_gpu_layers", "settings", "tiles"),
    [
        (0, {}, True),
        (0, {"type_k": "f32", "type_v": "f32"}, True),
        (0, {"type_k": "q8_0", "type_v": "q8_0"}, False),
        (0, {"type_k": "f16", "type_v": "f32"}, False),
        (0, {"flash_attn": "off"}, False),
        (9, {}, False),
        (0, {"prefill_tiles": False}, False),
    ],
)
def test_when_the_attention_may_have_tiles(n_gpu_layers: int, settings: dict[str, Any], tiles: bool) -> None:
    assert loaded(n_gpu_layers, **settings).attention_tiles is tiles
