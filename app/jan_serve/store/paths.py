"""Where jan-serve keeps things, by the platform's own conventions. Nothing here creates or reads a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

_APP = "jan-serve"


def default_config_file() -> Path:
    """The settings file that is read when no other is named. It need not exist."""
    return platformdirs.user_config_path(_APP, appauthor=False) / "config.toml"


def default_data_dir() -> Path:
    """Where state that must survive a restart is kept."""
    return platformdirs.user_data_path(_APP, appauthor=False)


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The folders of one installation. `models_dir` is the user's: jan-serve adds files there, and never moves any."""

    data_dir: Path
    models_dir: Path

    @property
    def cache_dir(self) -> Path:
        """What can be deleted at any time: saved prompt states."""
        return self.data_dir / "cache"
