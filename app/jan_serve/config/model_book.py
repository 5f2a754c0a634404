"""The current settings of single models: reloads the configuration file after a change."""

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
    """The settings of single models. Thread-safe; each call costs one stat of the file.

    Changes of the server's settings, at the top level of the file, are logged and apply after a restart.
    """

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
        """Settings by table name. A mistake in the file is logged, and the previous tables stay in use."""
        with self._lock:
            if self._path is not None and (stamp := file_stamp(self._path)) != self._stamp:
                self._stamp = stamp
                self._reload(self._path)
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
        keys = _changed_keys(before.get(name, common), after.get(name, common))
        for live, when in ((True, "from the next request"), (False, "when the model is reloaded")):
            some = [key for key in keys if (key in LIVE_KEYS) == live]
            if some:
                shown = ", ".join(some)
                lines.append(f"settings of {key_of((MODELS_KEY, name))} changed: {shown}; they apply {when}")
    return lines


def _changed_keys(before: ModelSettings, after: ModelSettings) -> list[str]:
    old, new = _flat(before), _flat(after)
    return [key for key in new if old[key] != new[key]]


def _flat(settings: ModelSettings) -> dict[str, Any]:
    own = {name: getattr(settings, name) for name in ModelSettings.model_fields if name != "options"}
    return own | {name: getattr(settings.options, name) for name in ModelOptions.model_fields}
