"""The options of dialects: their flags, variables and keys are those of any setting, and the core knows none."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cli.options import load_settings, setting_options
from jan_serve.config import Settings
from jan_serve.dialects.anthropic.options import AnthropicOptions
from jan_serve.dialects.lmdeploy.options import LmdeployOptions
from jan_serve.dialects.openai.options import OpenAIOptions
from jan_serve.dialects.tgi.options import TgiOptions
from jan_serve.errors import SettingsError

PARTS = (OpenAIOptions, AnthropicOptions, TgiOptions, LmdeployOptions)
VALUES = {
    "response_store_bytes": 5,
    "strip_billing_line": False,
    "tgi_max_concurrent_requests": 3,
    "tgi_max_best_of": 3,
    "tgi_max_stop_sequences": 3,
    "tgi_max_top_n_tokens": 3,
    "tgi_max_client_batch_size": 3,
    "tgi_max_input_tokens": 3,
    "tgi_max_total_tokens": 5,
    "tgi_max_body_bytes": 2048,
    "tgi_compute_type": "x",
    "watermark_gamma": 0.25,
    "watermark_delta": 1.5,
    "enable_abort_handling": True,
    "allow_terminate_by_client": True,
    "resume_s": 5.0,
}


def test_each_option_of_a_dialect_is_no_setting_of_the_core() -> None:
    fields = [name for part in PARTS for name in part.model_fields]
    assert sorted(fields) == sorted(VALUES)
    assert not set(fields) & set(Settings.model_fields)
    assert [option.panel for option in setting_options()][-len(fields) :] == (
        ["Anthropic"] + ["LMDeploy"] * 2 + ["OpenAI"] * 2 + ["Text Generation Inference"] * 11
    )


@pytest.mark.parametrize("field", VALUES)
def test_an_option_of_a_dialect_has_a_flag_a_variable_and_a_key(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = VALUES[field]
    file = tmp_path / "config.toml"
    file.write_text("")
    by_flag = load_settings({field: str(value)}, file)
    monkeypatch.setenv(f"JAN_SERVE_{field.upper()}", str(value))
    by_variable = load_settings(config_file=file)
    monkeypatch.delenv(f"JAN_SERVE_{field.upper()}")
    file.write_text(f"{field} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n")
    by_key = load_settings(config_file=file)
    for loaded, origin in (
        (by_flag, f"--{field.replace('_', '-')}"),
        (by_variable, f"JAN_SERVE_{field.upper()}"),
        (by_key, f"{file}:1"),
    ):
        assert getattr(loaded.settings, field) == value
        assert loaded.origins[field] == origin
        assert loaded.warnings == ()


def test_a_wrong_value_names_its_source() -> None:
    with pytest.raises(
        SettingsError, match="--tgi-max-best-of: tgi_max_best_of must be less than or equal to 64"
    ):
        load_settings({"tgi_max_best_of": "65"})
    with pytest.raises(SettingsError, match="tgi_max_input_tokens 9 must be below tgi_max_total_tokens 9"):
        load_settings({"tgi_max_input_tokens": "9", "tgi_max_total_tokens": "9"})


def test_settings_without_a_dialect_have_the_defaults_of_its_options() -> None:
    assert Settings.model_validate({}).part(TgiOptions) == TgiOptions()
    loaded = load_settings({"tgi_max_best_of": "7"})
    assert loaded.settings.part(TgiOptions).tgi_max_best_of == 7
