"""Model files that llama.cpp loads and that are not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from models.recipe import fixtures
from tests.support.worker import running_worker


@pytest.mark.parametrize("architecture", ["llada"])
def test_a_model_that_fills_in_many_places_at_once_is_refused_with_the_reason(
    tmp_path: Path, architecture: str
) -> None:
    path = tmp_path / "diffusion.gguf"
    fixtures.write_tiny_llama(path, architecture=architecture)
    with (
        pytest.raises(InvalidModel, match=rf"diffusion model \({architecture}\).* one token after another"),
        running_worker(path),
    ):
        pass
