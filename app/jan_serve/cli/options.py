"""Options that commands share, flags derived from the fields of Settings, and settings with those of all dialects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperOption

from jan_serve import config
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.config import LoadedSettings, Option, Settings, server_address
from jan_serve.dialects.options import ServerSettings
from jan_serve.store.files import private_folder, storage_error

if TYPE_CHECKING:
    from jan_serve.store.resolve import ModelResolver


def load_settings(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> LoadedSettings:
    return config.load_settings(flags, config_file, kind=ServerSettings)


def setting_options() -> tuple[Option, ...]:
    return config.setting_options(ServerSettings)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file. `jan-serve config` shows the one in use."
    ),
]

ModelsDirOption = Annotated[
    Path | None,
    typer.Option("--models-dir", metavar="FOLDER", help="Models folder; default: the configured one."),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address of the server; default: JAN_SERVE_URL, else the configured host and port.",
    ),
]
KeepAliveOption = Annotated[
    str | None,
    typer.Option(
        "--keep-alive",
        metavar="TIME",
        help="Unload the model after this time without requests: 10m, 1h30m or seconds; -1 means never.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def store_settings(config: Path | None, models_dir: Path | None) -> Settings:
    """Settings for a command on the models folder. Raises SettingsError."""
    return load_settings({"models_dir": models_dir}, config).settings


def make_data_folder(settings: Settings) -> None:
    """Before models are added: a data folder around them is this user's alone. Blocks. Raises StoreError."""
    if settings.models_dir.is_relative_to(settings.data_dir):
        try:
            private_folder(settings.data_dir)
        except OSError as error:
            raise storage_error(error, settings.data_dir) from error


def store_names(config: Path | None, models_dir: Path | None) -> tuple[Settings, ModelResolver]:
    """Settings as of `store_settings`, and the resolver of model names. Raises ModelNotFound too."""
    from jan_serve.wiring.parts import build_resolver  # slow, and not needed by commands that ask a server

    loaded = load_settings({"models_dir": models_dir}, config)
    return loaded.settings, build_resolver(loaded.settings, loaded.book())


def running_server(config: Path | None, url: str | None) -> ServerClient:
    """A client of the running server, not connected yet. Raises SettingsError."""
    return ServerClient(server_address(load_settings(config_file=config), url))


_COMMON: Final = frozenset(
    "host port api_keys no_auth model n_ctx parallel ttl_s n_gpu_layers device threads max_models memory_budget"
    " models_dir data_dir log_level".split()
)
"""Settings whose flags `--help` shows; `--help-all` shows the others too."""


def _show_all(context: typer.Context, is_wanted: bool) -> None:
    if is_wanted:
        for parameter in context.command.params:
            if isinstance(parameter, TyperOption):
                parameter.hidden = False
        context.get_help()  # prints it: rich does
        raise typer.Exit


def with_setting_flags(run: Callable[[LoadedSettings], int]) -> Callable[..., None]:
    """A command with --config and a flag for every setting; the result of `run` is its exit status.

    Values stay text: `load_settings` validates them and names the flag in errors.
    """

    def command(**values: Any) -> None:
        config_file: Path | None = values.pop("config")
        values.pop("help_all")
        raise typer.Exit(run(load_settings(values, config_file)))

    help_all = typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all flags and exit.")
    parameters = [
        _parameter("config", ConfigOption),
        _parameter("help_all", Annotated[bool, help_all], default=False),
    ]
    parameters += [_parameter(option.field, _annotation(option)) for option in setting_options()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return command


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(option: Option) -> Any:
    details = typer.Option(
        option.flag,
        help=_help(option),
        metavar="" if option.is_switch else option.metavar,
        hidden=option.field not in _COMMON,
        rich_help_panel=option.panel,
        show_default=False,
    )
    kind = bool if option.is_switch else list[str] if option.is_list else str
    return Annotated[kind | None, details]


def _help(option: Option) -> str:
    repeated = " May be given more than once." if option.is_list else ""
    default = f" Default: {option.default}." if option.default and not option.is_switch else ""
    return f"{option.description}{repeated}{default}"
