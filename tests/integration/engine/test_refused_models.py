"""Model files that llama.cpp loads and we reject."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from models.recipe import fixtures
from models.recipe.projector_fixtures import write_tiny_projector
from tests.support.engine.worker import running_worker


def test_a_model_that_fills_in_many_places_at_once_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "diffusion.gguf"
    fixtures.write_tiny_llama(path, architecture="llada")
    with (
        pytest.raises(InvalidModel, match=r"diffusion model \(llada\).* one token after another"),
        running_worker(path),
    ):
        pass


def _unknown(path: Path) -> None:
    write_tiny_projector(path, "mlp")
    path.write_bytes(path.read_bytes().replace(b"mlp", b"mlq", 1))


def test_a_projector_that_was_asked_for_and_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    model, projector = tmp_path / "tiny.gguf", tmp_path / "mmproj.gguf"
    fixtures.write_tiny_llama(model)
    _unknown(projector)
    with (
        pytest.raises(InvalidModel, match=r"mmproj\.gguf cannot be used: unknown projector type: mlq"),
        running_worker(model, projector=str(projector), projector_required=True),
    ):
        pass


def test_a_projector_that_was_only_found_beside_the_model_may_be_useless(tmp_path: Path) -> None:
    model, projector = tmp_path / "tiny.gguf", tmp_path / "mmproj.gguf"
    fixtures.write_tiny_llama(model)
    _unknown(projector)
    with running_worker(model, projector=str(projector)) as worker:
        assert worker.facts.modalities == ()
        assert worker.run_one("hello", max_tokens=1).choice.tokens is not None
