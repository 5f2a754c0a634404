"""Starts of programs: for this server and model, and with the key in the environment only."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from jan_serve.editors.launches import LAUNCHES, Start
from jan_serve.editors.recipes import RECIPES
from tests.unit.editors.test_recipes import FOLDERS, facts

KEY = "s3cret"


def start(name: str) -> Start:
    change = RECIPES[name](facts(needs_key=True), FOLDERS).change
    return LAUNCHES[name].start(facts(needs_key=True), KEY, change.path if change is not None else Path("/h"))


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_key_is_in_the_environment_and_in_no_argument(name: str) -> None:
    found = start(name)
    assert KEY in found.environment.values()
    assert not any(KEY in argument for argument in found.arguments)


def test_every_program_has_settings_too() -> None:
    assert LAUNCHES.keys() <= RECIPES.keys()


def test_claude() -> None:
    assert start("claude") == Start(
        ("--settings", str(Path("/h/.claude/jan-serve.settings.json"))),
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1337", "ANTHROPIC_AUTH_TOKEN": KEY, "ANTHROPIC_API_KEY": ""},
    )


def test_codex_gets_values_of_toml() -> None:
    arguments = start("codex").arguments
    values = tomllib.loads(
        "\n".join(arguments[index + 1] for index, word in enumerate(arguments) if word == "-c")
    )
    assert values == {
        "model_provider": "jan-serve",
        "model_context_window": 8192,
        "model_providers": {
            "jan-serve": {
                "name": "jan-serve",
                "base_url": "http://127.0.0.1:1337/v1",
                "wire_api": "responses",
                "env_key": "JAN_SERVE_API_KEY",
                "http_headers": {"x-jan-serve-stop-loops": "end"},
            }
        },
    }


def test_opencode_begins_with_the_model() -> None:
    environment = start("opencode").environment
    assert json.loads(environment["OPENCODE_CONFIG_CONTENT"]) == {"model": "jan-serve/org/chat:Q4"}
    assert environment["OPENCODE_CONFIG"].endswith("opencode.json")


def test_cline_reads_the_folder_of_its_file() -> None:
    folder = Path("/h/.cline")
    assert start("cline").arguments[:4] == ("--config", str(folder), "--data-dir", str(folder / "data"))
