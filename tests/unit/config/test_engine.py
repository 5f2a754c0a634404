"""The settings of a worker, from the options of a model and its header."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.config import LoadedSettings, ModelOptions, engine_settings, load_settings
from jan_serve.config.engine import SAME_NAME
from jan_serve.store.gguf.model_file import ModelFile


@pytest.fixture(autouse=True)
def _no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))


MODEL = ModelFile(
    paths=(Path("/m.gguf"),),
    architecture="llama",
    name=None,
    file_bytes=10,
    n_ctx_train=None,
    n_layer=2,
    layer_bytes=(3, 4),
    other_bytes=5,
    has_chat_template=False,
    pooling=None,
)


@pytest.mark.parametrize(("layers", "expected"), [("auto", None), ("all", -1), ("0", 0), ("17", 17)])
def test_layers_for_the_worker(layers: str, expected: int | None) -> None:
    engine = engine_settings(load_settings({"n_gpu_layers": layers}).settings, MODEL)
    assert engine.n_gpu_layers == expected


def test_options_reach_the_worker() -> None:
    flags = {
        "n_ctx": 512,
        "parallel": 2,
        "threads": 3,
        "device": "cpu",
        "flash_attn": "on",
        "type_k": "q8_0",
        "type_v": "q4_0",
        "n_batch": 256,
        "mmap": False,
        "mlock": True,
        "repack": False,
        "pooling": "mean",
        "cache_sequences": 4,
        "max_tokens_ceiling": 9,
    }
    loaded: LoadedSettings = load_settings(flags)
    engine = engine_settings(loaded.settings, MODEL)
    assert (engine.n_ctx, engine.parallel, engine.threads, engine.device) == (512, 2, 3, "cpu")
    assert (engine.flash_attn, engine.type_k, engine.type_v) == ("on", "q8_0", "q4_0")
    assert (engine.n_batch, engine.n_ubatch) == (256, 256)
    assert (engine.use_mmap, engine.use_mlock, engine.use_repack, engine.pooling) == (
        False,
        True,
        False,
        "mean",
    )
    assert (engine.cache_sequences, engine.max_tokens_ceiling) == (4, 9)
    assert (engine.layer_bytes, engine.other_bytes) == ((3, 4), 5)


def test_every_other_option_is_converted_or_stays_in_the_front() -> None:
    converted = {"mmap", "mlock", "repack", "cache_ram_mib", "cache_disk_mib"}
    in_front = {"ttl_s", "draft_model"}
    assert ModelOptions.model_fields.keys() - set(SAME_NAME) == converted | in_front
