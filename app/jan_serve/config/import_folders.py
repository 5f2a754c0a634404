"""The model folders of other programs: from their environment variables, else their defaults.
Reads environment variables only; the folders may not exist."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import platformdirs

from jan_serve.store.files import user_path


class ImportFolders(msgspec.Struct, frozen=True):
    """Folders to search, most likely first. lmstudio_home: the home folder with LM Studio's settings."""

    lmstudio_home: Path
    ollama: tuple[Path, ...]
    jan: tuple[Path, ...]
    hf_cache: tuple[Path, ...]


def import_folders() -> ImportFolders:
    home = Path.home()
    return ImportFolders(
        lmstudio_home=home,
        ollama=_from_variable("OLLAMA_MODELS") or _ollama_defaults(home),
        jan=_from_variable("JAN_DATA_FOLDER")
        or (platformdirs.user_data_path("Jan", appauthor=False, roaming=True) / "data",),
        hf_cache=_from_variable("HF_HUB_CACHE") or (_hf_home(home) / "hub",),
    )


def _from_variable(variable: str) -> tuple[Path, ...]:
    value = os.environ.get(variable)
    return (user_path(value).absolute(),) if value else ()


def _ollama_defaults(home: Path) -> tuple[Path, ...]:
    default = home / ".ollama" / "models"
    # Ollama's Linux installer runs it as a separate system user.
    return (default, Path("/usr/share/ollama/.ollama/models")) if sys.platform == "linux" else (default,)


def _hf_home(home: Path) -> Path:
    for variable, below in (("HF_HOME", ""), ("XDG_CACHE_HOME", "huggingface")):
        value = os.environ.get(variable)
        if value:
            return user_path(value).absolute() / below
    return home / ".cache" / "huggingface"
