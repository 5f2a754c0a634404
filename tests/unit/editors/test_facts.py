"""Facts that recipes use."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.placement import MAX_DEFAULT_N_CTX
from jan_serve.editors.recipe import editor_model


@pytest.mark.parametrize(
    ("card", "n_ctx", "is_exact"),
    [
        ({"context_length": 131_072, "meta": {"n_ctx_train": 131_072}}, MAX_DEFAULT_N_CTX, False),
        ({"context_length": 2048, "meta": {"n_ctx_train": 2048}}, 2048, False),
        ({"context_length": 65_536, "meta": {"n_ctx_train": 131_072, "n_ctx": 65_536}}, 65_536, True),
        ({"context_length": None}, None, False),
    ],
)
def test_the_context_of_a_model(card: dict[str, Any], n_ctx: int | None, is_exact: bool) -> None:
    model = editor_model({"id": "m", **card}, MAX_DEFAULT_N_CTX)
    assert (model.n_ctx, model.is_exact) == (n_ctx, is_exact)


@pytest.mark.parametrize(
    ("card", "sees"),
    [
        ({}, False),
        ({"architecture": {"input_modalities": ["text"]}}, False),
        ({"architecture": {"input_modalities": ["text", "audio"]}}, False),
        ({"architecture": {"input_modalities": ["text", "image"]}}, True),
    ],
)
def test_whether_a_model_sees(card: dict[str, Any], sees: bool) -> None:
    assert editor_model({"id": "m", **card}, MAX_DEFAULT_N_CTX).sees is sees
