"""Settings, store and supervisor put together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.config import Settings
from jan_serve.errors import InvalidModel, ModelNotFound
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver, manager_limits
from tests.unit.store.gguf_builder import GgufBytes, Tensor


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "a.gguf").write_bytes(GgufBytes().build())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    return Settings.model_validate({"models_dir": tmp_path, "data_dir": tmp_path, "model": "a", "n_ctx": 256})


def test_names_become_sources_and_engine_settings(settings: Settings, tmp_path: Path) -> None:
    sources = ModelSources(build_resolver(settings), settings)
    source = sources.resolve(None).source
    assert (source.name, source.path) == ("a", str(tmp_path / "a.gguf"))
    assert source == sources.resolve("A.gguf").source
    assert {"a", "broken"} <= {each.name for each in sources.list()}
    engine = sources.needs(source).settings
    assert (engine.n_ctx, engine.parts.layers[0].dense, engine.parts.weights) == (256, 34, 68)
    with pytest.raises(InvalidModel):
        sources.needs(sources.resolve("broken").source)
    with pytest.raises(ModelNotFound):
        sources.resolve("absent")


def test_a_changed_file_is_another_revision(settings: Settings, tmp_path: Path) -> None:
    sources = ModelSources(build_resolver(settings), settings)
    before = sources.resolve("a").source
    (tmp_path / "a.gguf").write_bytes(GgufBytes(tensors=(Tensor("x"),)).build())
    os.utime(tmp_path / "a.gguf", ns=(5, 5))
    after = sources.resolve("a").source
    assert after.revision != before.revision
    assert sources.needs(after).settings.parts.layers[0].dense == 0


def test_limits_are_the_configured_ones() -> None:
    settings = Settings.model_validate(
        {"max_queue": 7, "retry": 1, "stall_decode_s": 1, "stall_sample_s": 2, "load_timeout_s": 3}
    )
    limits = manager_limits(settings)
    assert (limits.max_queue, limits.retry) == (7, 1)
    assert (limits.worker.decode_s, limits.worker.sample_s, limits.worker.load_s) == (1, 2, 3)


def test_a_configured_model_that_is_not_there(settings: Settings) -> None:
    with pytest.raises(ModelNotFound):
        build_resolver(settings.model_copy(update={"model": "absent"}))
