"""Settings of single models over those of all."""

from __future__ import annotations

from pathlib import Path

from jan_serve.config import engine_settings, load_settings
from jan_serve.config.model_settings import LIVE_KEYS, OWN_KEYS
from tests.unit.config.support import WHOLE

from .test_model_options import MODEL


def test_a_table_overrides_the_options_of_all_models(config_file: Path) -> None:
    config_file.write_text(WHOLE)
    loaded = load_settings({"parallel": "5"})
    table = loaded.models["org/repo/Model-Q4"]
    engine = engine_settings(table.options, MODEL)
    assert (engine.n_ctx, engine.type_k, engine.parallel, engine.placement.n_gpu_layers) == (
        512,
        "q8_0",
        5,
        7,
    )
    assert engine_settings(loaded.settings, MODEL).n_ctx == 4096
    assert (table.options.ttl_s, loaded.settings.ttl_s) == (-1, 600)
    assert (table.aliases, table.pin, table.group) == (("gpt-4o", "local"), True, "large")
    assert table.template == str(config_file.parent / "mine.jinja")
    assert (table.sampling.temperature, table.sampling.top_k, table.sampling.top_p) == (0.5, 20, None)
    assert (table.sampling.max_tokens, table.sampling.stop) == (99, ("</s>",))
    assert [(each.name, each.file, each.scale) for each in table.lora] == [
        ("sql", config_file.parent / "adapters" / "sql.gguf", 1.0),
        ("poet", config_file.parent / "poet.gguf", 0.5),
    ]
    assert table.adapter("SQL") == table.lora[0] and table.adapter("s") is None
    other = loaded.models["other"]
    assert (other.template, other.options.n_ctx) == ("chatml", 4096)


def test_a_draft_model_is_a_file_beside_the_configuration_or_a_name(config_file: Path) -> None:
    config_file.write_text("[models.a]\ndraft_model = 'poet.gguf'\n[models.b]\ndraft_model = 'org/small'\n")
    models = load_settings().models
    drafts = [models[name].options.draft_model for name in ("a", "b")]
    assert drafts == [str(config_file.parent / "poet.gguf"), "org/small"]


def test_live_keys_are_keys(config_file: Path) -> None:
    config_file.write_text(WHOLE)
    assert {*OWN_KEYS, *type(load_settings().settings).model_fields} >= LIVE_KEYS
