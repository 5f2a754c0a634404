"""`jan-serve config`: shows and checks the settings."""

from __future__ import annotations

import typer

from jan_serve.cli.arguments import ConfigOption, JsonOption
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output
from jan_serve.config import LoadedSettings
from jan_serve.errors import JanServeError, ModelNotFound
from jan_serve.wiring.parts import build_resolver

config_app = typer.Typer(help="Show the settings and the sources of their values.")


@config_app.callback(invoke_without_command=True)
def show(context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show every setting with its value and source. API keys are hidden."""
    if context.invoked_subcommand is not None:
        context.obj = config
        return
    loaded = load_settings(config_file=config)
    if as_json:
        output.json(
            {
                "config_file": str(loaded.config_file),
                "config_file_read": loaded.config_file_read,
                "settings": {
                    name: {"value": value, "origin": origin} for name, value, origin in loaded.rows()
                },
                "models": {
                    key: {"value": value, "origin": origin} for key, value, origin in loaded.model_rows()
                },
                "warnings": list(loaded.warnings),
            }
        )
        return
    output.table(("setting", "value", "from"), [*loaded.rows(), *loaded.model_rows()])
    _note_config_file(loaded)


@config_app.command("check")
def check(context: typer.Context, config: ConfigOption = None) -> None:
    """Check the configuration file and the environment. The exit status is 2 if a setting is invalid."""
    loaded = load_settings(config_file=config or context.obj)
    _note_config_file(loaded)
    # Tables of models that match no local model are misspelt, or not downloaded yet.
    settings = loaded.settings.model_copy(update={"model": None})
    used = {entry.table for entry in build_resolver(settings, loaded.book()).entries()}
    for table in (name for name in loaded.models if name not in used):
        source = loaded.file.place_of("models", table) if loaded.file is not None else "--chat-template"
        output.warning(f"{source}: no local model is named {table!r}")
    if (missing := _missing_model(loaded)) is not None:
        output.warning(missing)
    output.note("The settings are valid.")


def _missing_model(loaded: LoadedSettings) -> str | None:
    """A message if the configured default model is not there."""
    origin = f"{loaded.origins.get('model', 'model')}: model"
    try:
        build_resolver(loaded.settings, loaded.book())
    except ModelNotFound as error:
        return f"{origin}: `{error.name}` is not installed: `jan-serve pull {error.name}` downloads a model of the hub"
    except JanServeError as error:
        return f"{origin}: {error.message}"
    return None


def _note_config_file(loaded: LoadedSettings) -> None:
    for warning in loaded.warnings:
        output.warning(warning)
    state = "is in use" if loaded.config_file_read else "does not exist"
    output.note(f"The configuration file {loaded.config_file} {state}.")
