"""Reads the `[models."NAME"]` tables of the configuration file, and reloads them after a change."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from jan_serve.config.config_file import ConfigFile, read_config_file
from jan_serve.config.fields import brief, near_key, sentence
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.model_settings import (
    LIVE_KEYS,
    OWN_KEYS,
    LoraSettings,
    ModelSettings,
    SamplingSettings,
    model_settings,
    template_value,
)
from jan_serve.config.settings import Settings
from jan_serve.errors import SettingsError
from jan_serve.store.files import file_stamp

MODELS_KEY: Final = "models"
MAX_TABLES: Final = 1000
MASK: Final = "********"

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
            rows.append((key_of(path), shown(value), file.place_of(*path)))
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


def shown(value: Any) -> str:
    """A value of a setting for people. Secrets are masked."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, cast(Sequence[Any], value)))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


logger = logging.getLogger(__name__)


class ModelBook:
    """The settings of single models. Thread-safe; each call costs one stat of the file.
    Changes of the server's settings, at the top level of the file, are logged and apply after a restart."""

    def __init__(
        self,
        settings: Settings,
        models: Mapping[str, ModelSettings] | None = None,
        file: ConfigFile | None = None,
    ) -> None:
        """models: the tables read with the settings. file: their source, which is watched for changes."""
        self._settings = settings
        tables = with_templates({}, settings.chat_template, settings) if models is None else models
        self._tables: Mapping[str, ModelSettings] = dict(tables)
        self._path = file.path if file is not None else None
        self._lock = threading.Lock()
        self._stamp = file_stamp(self._path) if self._path is not None else None
        self._top_level = _top_level(file) if file is not None else {}

    def tables(self) -> Mapping[str, ModelSettings]:
        """Settings by table name. A mistake in the file is logged, and the previous tables stay in use.

        Raises Unavailable if no file can be opened now.
        """
        with self._lock:
            if self._path is not None and (stamp := file_stamp(self._path)) != self._stamp:
                self._reload(self._path)
                self._stamp = stamp  # last: what could not be read for lack of descriptors is read again
            return self._tables

    def common(self) -> ModelOptions:
        """The options of models without a table."""
        return self._settings

    def _reload(self, path: Path) -> None:
        try:
            file = read_config_file(path, required=False)
            read = model_tables(file, self._settings)
            tables = with_templates(read, self._settings.chat_template, self._settings)
        except SettingsError as error:
            logger.error("the settings of models are unchanged because of a mistake: %s", error)
            return
        common = ModelSettings(options=self._settings)
        for line in _changes(self._tables, tables, common):
            logger.info("%s", line)
        self._tables = tables
        if _top_level(file) != self._top_level:
            logger.warning("%s: settings at the top level changed; they apply after a restart", file.path)
        self._top_level = _top_level(file)


def _top_level(file: ConfigFile) -> dict[str, Any]:
    return {name: value for name, value in file.values.items() if name != MODELS_KEY}


def _changes(
    before: Mapping[str, ModelSettings], after: Mapping[str, ModelSettings], common: ModelSettings
) -> list[str]:
    """Log lines: the changed keys, and when they apply. common: of models without a table."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = _flat(before.get(name, common)), _flat(after.get(name, common))
        keys = [key for key in new if old[key] != new[key]]
        for live, when in ((True, "from the next request"), (False, "when the model is reloaded")):
            if some := ", ".join(key for key in keys if (key in LIVE_KEYS) == live):
                lines.append(f"settings of {key_of((MODELS_KEY, name))} changed: {some}; they apply {when}")
    return lines


def _flat(settings: ModelSettings) -> dict[str, Any]:
    own = {name: getattr(settings, name) for name in ModelSettings.model_fields if name != "options"}
    return own | {name: getattr(settings.options, name) for name in ModelOptions.model_fields}
