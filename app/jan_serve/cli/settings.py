"""The settings of this program's servers, with the options of all dialects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jan_serve import config
from jan_serve.config import LoadedSettings, Option
from jan_serve.dialects.options import ServerSettings


def load_settings(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> LoadedSettings:
    return config.load_settings(flags, config_file, kind=ServerSettings)


def setting_options() -> tuple[Option, ...]:
    return config.setting_options(ServerSettings)
