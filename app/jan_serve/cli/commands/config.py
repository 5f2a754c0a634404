"""`jan-serve config`: the settings as they count now, each with where its value comes from. Changes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from jan_serve.cli.errors import CommandError
from jan_serve.cli.options import ConfigOption
from jan_serve.cli.output import Output
from jan_serve.config import LoadedSettings, load_settings
from jan_serve.config.file_version import migrate
from jan_serve.config.settings_loader import config_path
from jan_serve.wiring.parts import build_resolver

config_app = typer.Typer(help="Show the settings and where their values come from.")


@config_app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Show every setting, its value and where the value comes from. Keys are not shown."""
    if context.invoked_subcommand is not None:
        context.obj = config
        return
    loaded = load_settings(config_file=config)
    output = Output()
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
    _say_where(loaded, output)


@config_app.command("check")
def check(context: typer.Context, config: ConfigOption = None) -> None:
    """Check the configuration file and the environment. The exit status is 2 where something is wrong."""
    loaded = load_settings(config_file=config or context.obj)
    output = Output()
    _say_where(loaded, output)
    for table in _unused_tables(loaded):
        place = loaded.file.place_of("models", table) if loaded.file is not None else "--chat-template"
        output.warning(f"{place}: {table!r} is no name of a model that is here")
    output.note("The settings are valid.")


@config_app.command("migrate")
def migrate_(context: typer.Context, config: ConfigOption = None) -> None:
    """Rewrite a configuration file of an earlier version; comments stay, and a copy of the old file too."""
    # Also where a value is wrong by now: the file itself has to be readable, no more.
    path = config_path(config or context.obj)
    output = Output()
    try:
        backup = migrate(path)
    except FileNotFoundError:
        output.note(f"There is no configuration file {path}: nothing to do.")
        return
    except OSError as error:
        raise CommandError(f"cannot rewrite {path}: {error.strerror}", "The file is as it was.") from None
    if backup is None:
        output.note(f"{path} is of the present version already.")
    else:
        output.note(f"Rewrote {path}; the old one is {backup}.")


def _unused_tables(loaded: LoadedSettings) -> list[str]:
    """Tables of models that no model goes by: wrong names, or models that are not here yet."""
    settings = loaded.settings.model_copy(update={"model": None})
    used = {entry.table for entry in build_resolver(settings, loaded.book()).entries()}
    return [table for table in loaded.models if table not in used]


def _say_where(loaded: LoadedSettings, output: Output) -> None:
    for warning in loaded.warnings:
        output.warning(warning)
    state = "was read" if loaded.config_file_read else "does not exist; all settings have other sources"
    output.note(f"The configuration file {loaded.config_file} {state}.")
