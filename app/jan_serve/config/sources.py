"""Merges defaults, configuration file, environment and flags into one Settings, and remembers where each value is from.

It raises SettingsError with the place of the mistake: a line of the file, a variable or a flag.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings import SettingsError as SourceError

from jan_serve.config.options import setting_options
from jan_serve.config.settings import ENV_PREFIX, Settings
from jan_serve.errors import SettingsError
from jan_serve.store.paths import default_config_file

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
URL_VARIABLE = ENV_PREFIX + "URL"
_KEYS_VARIABLE = ENV_PREFIX + "API_KEYS"
_ONE_KEY_VARIABLE = ENV_PREFIX + "API_KEY"
# Variables of other programs that mean one of our settings; our own name wins.
_BORROWED_VARIABLES = {"hf_endpoint": "HF_ENDPOINT", "hf_token": "HF_TOKEN"}
_PATH_FIELDS = ("data_dir", "models_dir", "grammars_dir", "log_file")
_MAX_CONFIG_BYTES = 1 << 20
MASK = "********"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings with their history. `origins` names the source of each field that is not a default."""

    settings: Settings
    origins: Mapping[str, str]
    config_file: Path
    config_file_read: bool
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """(field, value, origin) of every setting. Secrets are masked."""
        return [
            (
                option.field,
                _shown(getattr(self.settings, option.field)),
                self.origins.get(option.field, "default"),
            )
            for option in setting_options()
        ]


def load_settings(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> LoadedSettings:
    """Read the configuration file and the environment, and put `flags` (by field; None is "not given") over them.

    `config_file` (--config) must exist, as must the one that JAN_SERVE_CONFIG names; the platform's default need not.
    Raises SettingsError.
    """
    path, required = _config_path(config_file)
    from_file, file_origins = _read_file(path, required=required)
    from_env, env_origins, warnings = _read_environment()
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != []}
    flag_names = {option.field: option.flag.split("/")[0] for option in setting_options()}
    values = from_file | from_env | given
    origins = file_origins | env_origins | {name: flag_names[name] for name in given}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, values, origins)) from None
    if {"api_keys", "hf_token"} & file_origins.keys() and _readable_by_others(path):
        warnings = (*warnings, f"{path} holds keys and can be read by other users of this machine")
    return LoadedSettings(settings, origins, path, bool(from_file) or path.is_file(), warnings)


def _config_path(config_file: Path | None) -> tuple[Path, bool]:
    if config_file is not None:
        return config_file.expanduser().absolute(), True
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser().absolute(), True
    return default_config_file(), False


def _read_file(path: Path, *, required: bool) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        if required:
            raise SettingsError(f"there is no configuration file {path}") from None
        return {}, {}
    except OSError as error:
        raise SettingsError(f"cannot read the configuration file {path}: {error.strerror}") from None
    if len(raw) > _MAX_CONFIG_BYTES:
        raise SettingsError(f"{path}: a configuration file may have {_MAX_CONFIG_BYTES} bytes at most")
    try:
        text = raw.decode("utf-8")
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from None
    origins = {name: f"{path}:{_line_of(text, name)}" for name in values}
    for name in values:
        if name not in Settings.model_fields:
            raise SettingsError(f"{origins[name]}: there is no setting {name!r}{_near(name)}")
    for name in _PATH_FIELDS:
        if isinstance(values.get(name), str) and values[name] != "none":
            values[name] = path.parent / Path(values[name]).expanduser()
    return values, origins


def _line_of(text: str, key: str) -> int:
    """Line (from 1) where a top-level key is set; tables and dotted keys count by their first part."""
    pattern = re.compile(rf"\s*\[{{0,2}}\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _read_environment() -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    for name in (_KEYS_VARIABLE, _ONE_KEY_VARIABLE):
        if name in os.environ and not os.environ[name].strip():
            raise SettingsError(f"{name} is set but empty: an empty key is not a key")
    try:
        values = EnvSettingsSource(Settings, env_prefix=ENV_PREFIX, env_ignore_empty=True)()
    except SourceError as error:
        raise SettingsError(f"the environment: {error}") from None
    origins = {name: ENV_PREFIX + name.upper() for name in values}
    if _ONE_KEY_VARIABLE in os.environ and "api_keys" not in values:
        values["api_keys"] = (os.environ[_ONE_KEY_VARIABLE],)
        origins["api_keys"] = _ONE_KEY_VARIABLE
    for field, variable in _BORROWED_VARIABLES.items():
        if os.environ.get(variable) and field not in values:
            values[field] = os.environ[variable]
            origins[field] = variable
    known = {option.variable for option in setting_options()} | {
        CONFIG_VARIABLE,
        URL_VARIABLE,
        _ONE_KEY_VARIABLE,
    }
    unknown = sorted(
        name for name in os.environ if name.upper().startswith(ENV_PREFIX) and name.upper() not in known
    )
    warnings = tuple(
        f"{name} is set, but there is no such setting{_near(_field_of(name))}" for name in unknown
    )
    return values, origins, warnings


def _field_of(variable: str) -> str:
    return variable[len(ENV_PREFIX) :].lower()


def _near(name: str) -> str:
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(Settings.model_fields), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line per mistake: where it is, what it is, and the value (never a secret)."""
    lines: dict[str, None] = {}
    secrets = {option.field for option in setting_options() if option.is_secret}
    for problem in error.errors(include_url=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            lines[message] = None
            continue
        field = str(problem["loc"][0])
        value = "" if field in secrets or field not in values else f" (it is {_brief(values[field])})"
        hint = ""
        if str(values.get(field, "")).startswith("tcp://") and origins.get(field, "").startswith(ENV_PREFIX):
            hint = "; Kubernetes sets this for a service of that name: use enableServiceLinks: false"
        lines[f"{origins.get(field, field)}: {field} {_sentence(message)}{value}{hint}"] = None
    return "\n".join(lines)


def _sentence(message: str) -> str:
    """Pydantic's "Input should be …" as the rest of a sentence about the field."""
    return message.replace("Input should be", "must be").replace("String should", "must")


def _brief(value: Any) -> str:
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, tuple):
        return ", ".join(_shown(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _readable_by_others(path: Path) -> bool:
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
