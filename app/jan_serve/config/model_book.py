"""The tables of models as they count now: the configuration file is read again when it has changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jan_serve.config.config_file import ConfigFile, read_config_file
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.model_settings import LIVE_KEYS, ModelSettings
from jan_serve.config.model_tables import MODELS_KEY, key_of, model_tables, with_templates
from jan_serve.config.settings import Settings
from jan_serve.errors import SettingsError
from jan_serve.store.files.file_stamp import file_stamp

logger = logging.getLogger(__name__)


class ModelBook:
    """What is said of single models. Any thread may ask; asking costs one look at the file's time of change.

    The settings of the server itself, at the file's top level, count from its start on: a change of them is only said.
    """

    def __init__(
        self,
        settings: Settings,
        models: Mapping[str, ModelSettings] | None = None,
        file: ConfigFile | None = None,
    ) -> None:
        """models: the tables as they were read with the settings. file: what they were read from, to follow it."""
        self._settings = settings
        given = with_templates({}, settings.chat_template, settings) if models is None else models
        self._tables: Mapping[str, ModelSettings] = dict(given)
        self._path = file.path if file is not None else None
        self._lock = threading.Lock()
        self._stamp = file_stamp(self._path) if self._path is not None else None
        self._top_level = _top_level(file) if file is not None else {}

    def tables(self) -> Mapping[str, ModelSettings]:
        """By name of the table. After a mistake in the file, which is logged, they stay as they were."""
        with self._lock:
            if self._path is not None and (stamp := file_stamp(self._path)) != self._stamp:
                self._stamp = stamp
                self._reload(self._path)
            return self._tables

    def common(self) -> ModelOptions:
        """The options of models without a table of their own."""
        return self._settings

    def _reload(self, path: Path) -> None:
        try:
            file = read_config_file(path, required=False)
            read = model_tables(file, self._settings)
            tables = with_templates(read, self._settings.chat_template, self._settings)
        except SettingsError as error:
            logger.error("the settings of models stay as they were, for a mistake: %s", error)
            return
        for line in _changes(self._tables, tables):
            logger.info("%s", line)
        self._tables = tables
        if _top_level(file) != self._top_level:
            logger.warning("%s: settings at the top level changed; they count after a restart", file.path)
        self._top_level = _top_level(file)


def _top_level(file: ConfigFile) -> dict[str, Any]:
    return {name: value for name, value in file.values.items() if name != MODELS_KEY}


def _changes(before: Mapping[str, ModelSettings], after: Mapping[str, ModelSettings]) -> list[str]:
    """What is different, and from when on it counts."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        keys = _changed_keys(before.get(name), after.get(name))
        for live, when in ((True, "from the next request on"), (False, "once the model is loaded again")):
            some = [key for key in keys if (key in LIVE_KEYS) == live]
            if some:
                shown = ", ".join(some)
                lines.append(f"settings of {key_of((MODELS_KEY, name))} changed: {shown}; they count {when}")
    return lines


def _changed_keys(before: ModelSettings | None, after: ModelSettings | None) -> list[str]:
    old, new = _flat(before), _flat(after)
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def _flat(settings: ModelSettings | None) -> dict[str, Any]:
    if settings is None:
        return {}
    own = {name: getattr(settings, name) for name in ModelSettings.model_fields if name != "options"}
    return own | {name: getattr(settings.options, name) for name in ModelOptions.model_fields}
