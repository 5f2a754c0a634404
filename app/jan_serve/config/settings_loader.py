"""Merges defaults, file, environment and flags into one Settings, and records the source of each value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr, ValidationError

from jan_serve.config.config_file import ConfigFile, read_config_file
from jan_serve.config.fields import brief, check_url, near_key, sentence
from jan_serve.config.model_settings import (
    MODELS_KEY,
    ModelBook,
    ModelSettings,
    model_rows,
    model_tables,
    shown,
    with_templates,
)
from jan_serve.config.options import setting_options
from jan_serve.config.settings import ENV_PREFIX, Settings
from jan_serve.core.hosts import url_of_host
from jan_serve.errors import SettingsError
from jan_serve.store.files import default_config_file, in_unknown_home, user_path

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
URL_VARIABLE = ENV_PREFIX + "URL"
_KEYS_VARIABLE = ENV_PREFIX + "API_KEYS"
_ONE_KEY_VARIABLE = ENV_PREFIX + "API_KEY"
_PATH_FIELDS = ("data_dir", "models_dir", "grammars_dir", "log_file", "mcp_file")


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings with their sources. origins: the source of each field that is not a default.
    models: the tables of models by name. file: empty if the file does not exist."""

    settings: Settings
    origins: Mapping[str, str]
    config_file: Path
    config_file_read: bool
    warnings: tuple[str, ...] = ()
    models: Mapping[str, ModelSettings] = msgspec.field(default_factory=dict[str, ModelSettings])
    file: ConfigFile | None = None

    def book(self) -> ModelBook:
        """The tables of models, reloaded when the file changes."""
        return ModelBook(self.settings, self.models, self.file)

    def model_rows(self) -> list[tuple[str, str, str]]:
        """(key, value, origin) of every setting of single models."""
        return model_rows(self.file) if self.file is not None else []

    def rows(self) -> list[tuple[str, str, str]]:
        """(field, value, origin) of every setting. Secrets are masked."""
        fields = [option.field for option in setting_options(type(self.settings))]
        return [
            (name, shown(getattr(self.settings, name)), self.origins.get(name, "default")) for name in fields
        ]


def load_settings(
    flags: Mapping[str, Any] | None = None,
    config_file: Path | None = None,
    *,
    kind: type[Settings] = Settings,
) -> LoadedSettings:
    """Read the configuration file and the environment; `flags` (by field; None is unset) take precedence.
    kind: the settings that there are.
    `config_file` (--config) and the file in JAN_SERVE_CONFIG must exist; the platform's default may be missing. Raises
    SettingsError."""
    path, required = find_config(config_file)
    file = read_config_file(path, required=required)
    from_file, file_origins, mistakes = _file_values(file, kind)
    from_env, env_origins, warnings = _read_environment(kind)
    from_flags = {name: value for name, value in (flags or {}).items() if value is not None and value != []}
    flag_names = {option.field: option.flag.split("/")[0] for option in setting_options(kind)}
    values = from_file | from_env | from_flags
    origins = file_origins | env_origins | {name: flag_names[name] for name in from_flags}
    settings, wrong = _validated(kind, values, origins)
    mistakes += wrong
    try:
        tables = model_tables(file, settings)
    except SettingsError as error:
        mistakes += error.message.splitlines()
        tables = {}
    if mistakes:
        raise SettingsError("\n".join(_in_order(mistakes, path)))
    models = with_templates(tables, settings.chat_template, settings)
    if {"api_keys", "hf_token"} & file_origins.keys() and _readable_by_others(path):
        warnings = (*warnings, f"{path} holds keys and can be read by other users of this machine")
    return LoadedSettings(
        settings, origins, path, bool(file.values) or path.is_file(), warnings, models, file
    )


def find_config(config_file: Path | None = None) -> tuple[Path, bool]:
    """The configuration file in use: the argument, else JAN_SERVE_CONFIG, else the platform's default.
    Whether the user named it, so that it must exist."""
    if config_file is not None:
        return user_path(config_file).absolute(), True
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return user_path(named).absolute(), True
    return default_config_file(), False


def _file_values(file: ConfigFile, kind: type[Settings]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """The known settings at the top level of the file, the line of each, and a message for each unknown one."""
    values = {name: value for name, value in file.values.items() if name != MODELS_KEY}
    origins = {name: file.place_of(name) for name in values}
    unknown = [name for name in values if name not in kind.model_fields]
    mistakes = [
        f"{origins[name]}: there is no setting {name!r}{near_key(name, kind.model_fields)}"
        for name in unknown
    ]
    for name in unknown:
        del values[name], origins[name]
    for name in _PATH_FIELDS:
        value = values.get(name)
        # The field rejects the home of an unknown user.
        if isinstance(value, str) and value != "none" and not in_unknown_home(path := user_path(value)):
            values[name] = file.path.parent / path
    return values, origins, mistakes


def _read_environment(kind: type[Settings]) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    for name in (_KEYS_VARIABLE, _ONE_KEY_VARIABLE):
        if name in os.environ and not os.environ[name].strip():
            raise SettingsError(f"{name} is set but empty: an empty key is not a key")
    values: dict[str, Any] = {}
    if any(name.upper().startswith(ENV_PREFIX) for name in os.environ):
        from jan_serve.config.environment import environment_values

        values = environment_values(kind)
    origins = {name: ENV_PREFIX + name.upper() for name in values}
    if _ONE_KEY_VARIABLE in os.environ and "api_keys" not in values:
        values["api_keys"] = (os.environ[_ONE_KEY_VARIABLE],)
        origins["api_keys"] = _ONE_KEY_VARIABLE
    for option in setting_options(kind):
        if option.also and os.environ.get(option.also) and option.field not in values:
            values[option.field] = os.environ[option.also]
            origins[option.field] = option.also
    known = {CONFIG_VARIABLE, URL_VARIABLE, _ONE_KEY_VARIABLE}
    known |= {option.variable for option in setting_options(kind)}
    unknown = sorted(
        name for name in os.environ if name.upper().startswith(ENV_PREFIX) and name.upper() not in known
    )
    warnings = tuple(
        f"{name} is set, but there is no such setting{near_key(name[len(ENV_PREFIX) :].lower(), kind.model_fields)}"
        for name in unknown
    )
    return values, origins, warnings


def _validated(
    kind: type[Settings], values: Mapping[str, Any], origins: Mapping[str, str]
) -> tuple[Settings, list[str]]:
    """The settings and the mistakes in the values. Of mistaken values, the settings have the defaults."""
    try:
        return kind(**values), []
    except ValidationError as error:
        mistakes = _explain(kind, error, values, origins)
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
    try:
        return kind(**{name: value for name, value in values.items() if name not in wrong}), mistakes
    except ValidationError:  # of values that do not go together
        return kind.model_validate({}), mistakes


def _in_order(mistakes: Iterable[str], path: Path) -> list[str]:
    """Mistakes of the file by line, then the others."""
    prefix = f"{path}:"

    def line_of(mistake: str) -> float:
        line = mistake.removeprefix(prefix).partition(":")[0]
        return int(line) if mistake.startswith(prefix) and line.isdigit() else float("inf")

    return sorted(dict.fromkeys(mistakes), key=line_of)


def _explain(
    kind: type[Settings], error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]
) -> list[str]:
    """One line per mistake: source, reason and value (never a secret)."""
    lines: dict[str, None] = {}
    secrets = {option.field for option in setting_options(kind) if option.is_secret}
    for problem in error.errors(include_url=False, include_context=False):
        message = sentence(problem["msg"])
        if not problem["loc"]:
            lines[message] = None
            continue
        name = str(problem["loc"][0])
        value = "" if name in secrets or name not in values else f" (it is {brief(values[name])})"
        hint = ""
        if str(values.get(name, "")).startswith("tcp://") and origins.get(name, "").startswith(ENV_PREFIX):
            hint = "; Kubernetes sets this for a service of that name: use enableServiceLinks: false"
        lines[f"{origins.get(name, name)}: {name} {message}{value}{hint}"] = None
    return list(lines)


def _readable_by_others(path: Path) -> bool:
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


class ServerAddress(msgspec.Struct, frozen=True):
    """url: without a trailing slash. origin, key_origin: the sources of the values."""

    url: str
    origin: str
    key: SecretStr | None
    key_origin: str


def server_address(loaded: LoadedSettings, url: str | None = None) -> ServerAddress:
    """`url` (--url), else JAN_SERVE_URL, else the configured host and port; with the first configured key.
    Raises SettingsError."""
    settings = loaded.settings
    key = settings.api_keys[0] if settings.api_keys else None
    key_origin = loaded.origins.get("api_keys", "default")
    for origin, value in (("--url", url), (URL_VARIABLE, os.environ.get(URL_VARIABLE))):
        if value:
            return ServerAddress(checked_url(value, origin), origin, key, key_origin)
    if settings.port == 0:
        raise SettingsError(
            "port: 0 is any free port, which is not known here: --url says where the server is"
        )
    origin = loaded.origins.get("port") or loaded.origins.get("host") or "default"
    return ServerAddress(url_of_host(settings.host, settings.port), origin, key, key_origin)


def has_address(loaded: LoadedSettings, url: str | None = None) -> bool:
    """False if no URL is set and port 0 leaves the port unknown."""
    return bool(url or os.environ.get(URL_VARIABLE) or loaded.settings.port)


def checked_url(url: str, origin: str) -> str:
    """The URL without a slash or `/v1` at the end; http if it names no scheme. Raises SettingsError."""
    try:
        address = check_url(url if "://" in url else f"http://{url}", "http://127.0.0.1:1337")
    except ValueError as error:
        raise SettingsError(f"{origin}: {url!r} {error}") from None
    return address.removesuffix("/v1")
