"""The loader resolves automatic settings for the model and the device."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.engine.cache.cell_allocator import IDLE_CELLS, READ_IDLE_CELLS
from jan_serve.engine.loading.contexts import default_parallel, with_shorter_context
from jan_serve.engine.loading.loader import resolved
from jan_serve.errors import InsufficientMemory
from jan_serve.ipc.messages import EngineSettings
from tests.support.engine.fake_client import fake_facts


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
        (0, {"flash_attn": "off"}, READ_IDLE_CELLS),
        (9, {}, READ_IDLE_CELLS),
        (9, {"idle_cells": 0}, 0),
        (0, {"idle_cells": 7000}, 7000),
    ],
)
def test_idle_cells_depend_on_what_attention_reads(
    n_gpu_layers: int, settings: dict[str, Any], cells: int
) -> None:
    assert settings_of(n_gpu_layers, **settings).idle_cells == cells


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
