"""Model files that llama.cpp loads and we reject."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from models.recipe import fixtures
from tests.support.worker import running_worker


def test_a_model_that_fills_in_many_places_at_once_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "diffusion.gguf"
    fixtures.write_tiny_llama(path, architecture="llada")
    with (
        pytest.raises(InvalidModel, match=r"diffusion model \(llada\).* one token after another"),
        running_worker(path),
    ):
        pass
