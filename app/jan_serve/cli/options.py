"""Options that commands share, flags derived from the fields of Settings, and settings with those of all dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperOption

from jan_serve import config
from jan_serve.cli.arguments import ConfigOption, option, parameter, taking
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
    Values stay text: `load_settings` validates them and names the flag in errors."""

    def command(**values: Any) -> None:
        config_file: Path | None = values.pop("config")
        values.pop("help_all")
        raise typer.Exit(run(load_settings(values, config_file)))

    help_all = option("--help-all", "Show all flags and exit.", is_eager=True, callback=_show_all)
    parameters = [parameter("config", ConfigOption), parameter("help_all", Annotated[bool, help_all], False)]
    parameters += [parameter(each.field, _annotation(each)) for each in setting_options()]
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return taking(command, parameters)


def _annotation(setting: Option) -> Any:
    repeated = " May be given more than once." if setting.is_list else ""
    default = f" Default: {setting.default}." if setting.default and not setting.is_switch else ""
    details = typer.Option(
        setting.flag,
        help=f"{setting.description}{repeated}{default}",
        metavar="" if setting.is_switch else setting.metavar,
        hidden=setting.field not in _COMMON,
        rich_help_panel=setting.panel,
        show_default=False,
    )
    kind = bool if setting.is_switch else list[str] if setting.is_list else str
    return Annotated[kind | None, details]
