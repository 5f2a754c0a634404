"""Validates the tables of models in a configuration file; errors name line and key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jan_serve.config.config_file import ConfigFile
from jan_serve.config.error_text import brief, near_key, sentence
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.model_settings import (
    OWN_KEYS,
    LoraSettings,
    ModelSettings,
    SamplingSettings,
    model_settings,
    template_value,
)
from jan_serve.errors import SettingsError

MODELS_KEY: Final = "models"
MAX_TABLES: Final = 1000

_KEYS_OF: Final[Mapping[str, Iterable[str]]] = {
    "sampling": SamplingSettings.model_fields,
    "lora": LoraSettings.model_fields,
    "options": (*OWN_KEYS, *ModelOptions.model_fields),
}


def model_tables(file: ConfigFile, common: ModelOptions) -> dict[str, ModelSettings]:
    """Tables by NAME, over the options of all models. Raises SettingsError, one line per mistake."""
    raw = file.values.get(MODELS_KEY, {})
    if not isinstance(raw, dict):
        raise SettingsError(f'{file.place_of(MODELS_KEY)}: {MODELS_KEY} must be tables: [models."NAME"]')
    tables = cast(dict[str, Any], raw)
    if len(tables) > MAX_TABLES:
        raise SettingsError(
            f"{file.place_of(MODELS_KEY)}: {len(tables)} tables of models are over {MAX_TABLES}"
        )
    found: dict[str, ModelSettings] = {}
    mistakes: list[str] = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            mistakes.append(
                f'{file.place_of(MODELS_KEY, name)}: models: {name!r} must be a table: [models."NAME"]'
            )
            continue
        values = cast(dict[str, Any], table)
        try:
            found[name] = model_settings(values, common, file.path.parent)
        except ValidationError as error:
            mistakes += [_mistake(file, name, values, problem) for problem in error.errors(include_url=False)]
        else:
            mistakes += _missing_files(file, name, found[name])
    mistakes += _shared_names(file, found)
    if mistakes:
        raise SettingsError("\n".join(dict.fromkeys(mistakes)))
    return found


def with_templates(
    tables: Mapping[str, ModelSettings], overrides: Iterable[str], common: ModelOptions
) -> dict[str, ModelSettings]:
    """The tables with their `template` replaced by `--chat-template MODEL=FILE|NAME`. Raises SettingsError."""
    result = dict(tables)
    for item in overrides:
        name, _, value = item.partition("=")
        if not name or not value:
            raise SettingsError(f"chat_template: {item!r} is not MODEL=FILE or MODEL=NAME")
        template = template_value(value, Path.cwd())
        if Path(template).is_absolute() and not os.path.isfile(template):
            raise SettingsError(f"chat_template: there is no file {template}")
        table = result.get(name) or ModelSettings(options=common)
        result[name] = table.model_copy(update={"template": template})
    return result


def model_rows(file: ConfigFile) -> list[tuple[str, str, str]]:
    """(key, value, location) of every value in the tables of a file that `model_tables` accepted."""
    rows: list[tuple[str, str, str]] = []

    def add(path: tuple[str | int, ...], value: Any) -> None:
        inner: list[tuple[str | int, Any]] | None = None
        if isinstance(value, dict):
            inner = list(cast(dict[str, Any], value).items())
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            inner = list(enumerate(cast(list[Any], value)))
        if inner is None:
            rows.append((key_of(path), _shown(value), file.place_of(*path)))
            return
        for key, part in inner:
            add((*path, key), part)

    add((MODELS_KEY,), file.values.get(MODELS_KEY, {}))
    return rows


def key_of(path: Iterable[str | int]) -> str:
    """A key in TOML notation: `models."a/b".lora[0].scale`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        bare = part.replace("_", "").replace("-", "").isalnum() and part.isascii()
        text += ("." if text else "") + (part if bare else json.dumps(part, ensure_ascii=False))
    return text


def _mistake(file: ConfigFile, name: str, table: Mapping[str, Any], problem: ErrorDetails) -> str:
    location = tuple(problem["loc"])
    path = (MODELS_KEY, name, *(location[1:] if location[:1] == ("options",) else location))
    line, key = file.place_of(*path), key_of(path)
    if problem["type"] == "extra_forbidden":
        kind = location[0] if len(location) > 1 else "options"
        return f"{line}: there is no setting {key}{near_key(str(path[-1]), _KEYS_OF[str(kind)])}"
    if problem["type"] == "missing":
        return f"{line}: {key} is missing"
    value: Any = table
    for part in path[2:]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            value = table
            break
    shown = "" if value is table else f" (it is {brief(value)})"
    return f"{line}: {key} {sentence(problem['msg'])}{shown}"


def _missing_files(file: ConfigFile, name: str, table: ModelSettings) -> Iterable[str]:
    if table.template is not None and Path(table.template).is_absolute():
        yield from _missing(file, (MODELS_KEY, name, "template"), Path(table.template))
    for number, adapter in enumerate(table.lora):
        yield from _missing(file, (MODELS_KEY, name, "lora", number, "file"), adapter.file)


def _missing(file: ConfigFile, path: tuple[str | int, ...], wanted: Path) -> Iterable[str]:
    if not os.path.isfile(wanted):
        yield f"{file.place_of(*path)}: {key_of(path)}: there is no file {wanted}"


def _shared_names(file: ConfigFile, tables: Mapping[str, ModelSettings]) -> Iterable[str]:
    """Rejects an alias that two tables share or that names another table: it would be ambiguous."""
    owners = {name.casefold(): name for name in tables}
    for name, table in tables.items():
        for number, alias in enumerate(table.aliases):
            path = (MODELS_KEY, name, "aliases", number)
            owner = owners.setdefault(alias.casefold(), name)
            if owner != name:
                yield f"{file.place_of(*path)}: {key_of(path)}: {alias!r} is a name of {owner!r} already"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in cast(list[Any], value))
    return str(value)
