"""The settings as flags of a command. They are derived from the fields of Settings: a new field is a new flag."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.config import (
    LoadedSettings,
    Option,
    Settings,
    load_settings,
    server_address,
    setting_options,
)

if TYPE_CHECKING:
    from jan_serve.store.resolve import ModelResolver

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file. `jan-serve config` says which is read."
    ),
]

ModelsDirOption = Annotated[
    Path | None,
    typer.Option("--models-dir", metavar="FOLDER", help="Models folder, instead of the configured one."),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server to ask: the configured host and port without it, or what JAN_SERVE_URL says.",
    ),
]
KeepAliveOption = Annotated[
    str | None,
    typer.Option(
        "--keep-alive",
        metavar="TIME",
        help="Unload the model when nobody asked for it for this long: 10m, 1h30m or seconds; -1 is never.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def store_settings(config: Path | None, models_dir: Path | None) -> Settings:
    """The settings of a command that works on the models folder. Raises SettingsError."""
    return load_settings({"models_dir": models_dir}, config).settings


def store_names(config: Path | None, models_dir: Path | None) -> tuple[Settings, ModelResolver]:
    """As `store_settings`, with the models by all names that requests may use. Raises ModelNotFound beside."""
    from jan_serve.wiring.parts import build_resolver  # commands that ask a server do without

    loaded = load_settings({"models_dir": models_dir}, config)
    return loaded.settings, build_resolver(loaded.settings, loaded.book())


def connection_to(config: Path | None, url: str | None) -> ServerConnection:
    """The running server of a command that works on one. Connects to nothing yet. Raises SettingsError."""
    return ServerConnection(server_address(load_settings(config_file=config), url))


def with_setting_flags(run: Callable[[LoadedSettings], int]) -> Callable[..., None]:
    """A command with --config and a flag for every setting: it loads the settings and exits as `run` says.

    Values are passed on as text: `load_settings` checks them all in one way and names the flag.
    """

    def command(**values: Any) -> None:
        config_file: Path | None = values.pop("config")
        raise typer.Exit(run(load_settings(values, config_file)))

    parameters = [_parameter("config", ConfigOption)]
    parameters += [_parameter(option.field, _annotation(option)) for option in setting_options()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return command


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _annotation(option: Option) -> Any:
    details = typer.Option(
        option.flag,
        help=_help(option),
        metavar=None if option.is_switch else option.metavar,
        rich_help_panel=option.group,
        show_default=False,
    )
    kind = bool if option.is_switch else list[str] if option.is_list else str
    return Annotated[kind | None, details]


def _help(option: Option) -> str:
    repeated = " May be given more than once." if option.is_list else ""
    default = f" Default: {option.default}." if option.default and not option.is_switch else ""
    return f"{option.description}{repeated}{default}"
