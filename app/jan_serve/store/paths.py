"""Paths of jan-serve's files, by the platform's conventions. Creates and reads nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import platformdirs

_APP = "jan-serve"


def default_config_file() -> Path:
    """The default configuration file. It may not exist."""
    return platformdirs.user_config_path(_APP, appauthor=False) / "config.toml"


def default_data_dir() -> Path:
    """The folder for state that survives restarts."""
    return platformdirs.user_data_path(_APP, appauthor=False)


def user_path(text: str | Path) -> Path:
    """Expand `~` as Path.expanduser does, but the home of an unknown user stays as it is written. Does not raise."""
    return Path(os.path.expanduser(text))


def in_unknown_home(path: Path) -> bool:
    """Whether `user_path` found no home for the user that the path names."""
    return path.parts[:1] != () and path.parts[0].startswith("~")


class StorePaths(msgspec.Struct, frozen=True):
    """The folders of one installation. models_dir belongs to the user: jan-serve adds files but moves none."""

    data_dir: Path
    models_dir: Path

    @property
    def cache_dir(self) -> Path:
        """Saved prompt states and tokens of vocabularies, which can be deleted at any time."""
        return self.data_dir / "cache"
