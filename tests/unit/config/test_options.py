"""Settings as flags and variables."""

from __future__ import annotations

from jan_serve.config import Settings, setting_options


def test_every_field_is_documented() -> None:
    options = setting_options()
    assert {option.field for option in options} == set(Settings.model_fields)
    assert len({option.flag for option in options}) == len(options)
    for option in options:
        assert option.description.endswith("."), option.field
        assert option.flag.startswith("--")
        assert option.variable == f"JAN_SERVE_{option.field.upper()}"


def test_defaults_are_written_as_variables_are() -> None:
    (routes,) = [option for option in setting_options() if option.field == "open_routes"]
    assert routes.default.startswith("/api/version,/api/tags,")
    assert [option.field for option in setting_options() if "('" in option.default] == []


def test_only_times_are_shown_in_seconds() -> None:
    shown = {option.field for option in setting_options() if option.metavar == "SECONDS"}
    assert shown
    assert all(field.endswith("_s") for field in shown)
