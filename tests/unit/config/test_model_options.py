"""The settings of a worker, from the options of a model and its header."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jan_serve.config import LoadedSettings, ModelOptions, engine_settings, load_settings
from jan_serve.config.model_options import SAME_NAME
from jan_serve.core.placement import LayerParts, ModelParts, PlacementOptions
from jan_serve.errors import SettingsError
from jan_serve.store.gguf.model_file import ModelFile, read_model_file
from models.recipe.mtp_fixtures import write_tiny_mtp
from tests.unit.store.gguf_builder import GgufBytes, Tensor


@pytest.fixture(autouse=True)
def _no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))


PARTS = ModelParts(layers=(LayerParts(3), LayerParts(4)), input_bytes=5)
MODEL = ModelFile(
    paths=(Path("/m.gguf"),),
    architecture="llama",
    name=None,
    file_bytes=10,
    n_ctx_train=None,
    n_layer=2,
    parts=PARTS,
    tensor_bytes=12,
    chat_template=None,
    pooling=None,
)


@pytest.mark.parametrize(("layers", "expected"), [("auto", None), ("all", -1), ("0", 0), ("17", 17)])
def test_layers_for_the_worker(layers: str, expected: int | None) -> None:
    engine = engine_settings(load_settings({"n_gpu_layers": layers}).settings, MODEL)
    assert engine.placement.n_gpu_layers == expected


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
    assert engine.parts == PARTS


def test_every_other_option_is_converted_or_stays_in_the_front() -> None:
    converted = {
        "mtp",
        "mmap",
        "mlock",
        "repack",
        "cache_ram_mib",
        "cache_disk_mib",
        *PlacementOptions.__struct_fields__,
    }
    in_front = {"ttl_s", "draft_model", "stop_loops"}
    assert ModelOptions.model_fields.keys() - set(SAME_NAME) == converted | in_front


def test_the_placement_of_a_model_reaches_the_worker() -> None:
    flags = {
        "n_cpu_moe": "3",
        "tensor_split": ["3,1"],
        "split_mode": "row",
        "main_gpu": "1",
        "require_accelerator": True,
    }
    engine = engine_settings(load_settings(flags).settings, MODEL)
    assert engine.placement == PlacementOptions(
        n_cpu_moe=3, tensor_split=(3.0, 1.0), split_mode="row", main_gpu=1, require_accelerator=True
    )


def test_tensors_of_a_pattern_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = (Tensor("token_embd.weight"), Tensor("blk.0.ffn_up.weight"), Tensor("blk.0.ffn_down.weight"))
    path.write_bytes(GgufBytes(tensors=tensors, n_layer=1).build())
    settings = load_settings({"override_tensor": [r"blk\.0\.ffn_(up|gate)=CPU", "ffn_up=never"]}).settings
    parts = engine_settings(settings, read_model_file(path)).parts
    assert parts.pinned == (("CPU", 34),)
    assert (parts.layers[0].dense, parts.weights) == (34, 3 * 34)


@pytest.mark.parametrize("text", ["no-device", "=CPU", "x=", "(=CPU"])
def test_an_override_that_is_none(text: str) -> None:
    with pytest.raises(SettingsError, match=r"REGEX=DEVICE|not a regular expression|at least 3"):
        load_settings({"override_tensor": [text]})


def test_a_head_for_further_tokens_is_counted_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_mtp(path, n_layer=1, n_embd=64)
    model = read_model_file(path)
    assert model.parts.n_ahead == 1 and model.parts.layers[1].weights == 0
    for flags, expected in (({}, "auto"), ({"mtp": "on"}, "on"), ({"mtp": "off"}, "off")):
        settings = engine_settings(load_settings(flags).settings, model)
        assert settings.mtp == expected
        assert (settings.parts.layers[1].weights > 0) == (expected != "off")
    assert engine_settings(load_settings({"draft_model": "x"}).settings, model).mtp == "off"
    others = msgspec.structs.replace(model, architecture="deepseek2"), MODEL
    assert [
        engine_settings(load_settings({"mtp": mode}).settings, other).mtp
        for other in others
        for mode in ("auto", "on")
    ] == ["off", "on", "off", "off"]


@pytest.mark.parametrize(
    ("mode", "architecture", "heads", "state", "draft", "reason"),
    [
        ("auto", "glm4moe", 1, 0, None, ""),
        ("on", "glm4moe", 1, 0, None, ""),
        ("on", "glm4moe", 0, 0, None, ""),
        ("off", "qwen35", 1, 9, None, ""),
        ("on", "glm4moe", 1, 0, "x", "a draft model drafts in its place"),
        ("auto", "qwen35", 1, 9, None, ""),
        ("on", "qwen35moe", 1, 9, None, ""),
        (
            "on",
            "qwen3next",
            1,
            9,
            None,
            "llama.cpp cannot drop a rejected draft from the recurrent layers of qwen3next",
        ),
        ("on", "glm4moe", 3, 0, None, "it has 3 of them"),
        ("on", "mimo2", 1, 0, None, "jan-serve does not know the head of mimo2"),
        ("auto", "deepseek2", 1, 0, None, "the head of deepseek2 was not tried: mtp = on uses it"),
        ("on", "deepseek2", 1, 0, None, ""),
    ],
)
def test_heads_that_do_not_draft_have_a_reason(
    tmp_path: Path, mode: str, architecture: str, heads: int, state: int, draft: str | None, reason: str
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_mtp(path, n_layer=1, n_embd=64)
    model = read_model_file(path)
    layers = tuple(msgspec.structs.replace(layer, state_elements=state) for layer in model.parts.layers)
    parts = msgspec.structs.replace(model.parts, n_ahead=heads, layers=layers)
    model = msgspec.structs.replace(model, architecture=architecture, parts=parts)
    flags = {"mtp": mode} | ({"draft_model": draft} if draft else {})
    settings = engine_settings(load_settings(flags).settings, model)
    assert settings.unused_heads.startswith(reason) and bool(settings.unused_heads) == bool(reason)
    assert (settings.mtp != "off") == (heads == 1 and mode != "off" and not reason)


def test_a_head_without_its_tensors_is_none(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_mtp(path, n_layer=1, n_embd=64)
    path.write_bytes(path.read_bytes().replace(b".nextn.eh_proj.", b".nextn.eh_lost."))
    assert read_model_file(path).parts.n_ahead == 0
