"""Where other programs on this machine keep their models: by their own variables, else by their defaults.

Nothing is read but environment variables; whether the folders exist is the caller's to see.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class ImportFolders:
    """Folders to look into, most likely first. lmstudio_home: the home in which LM Studio says where its folder is."""

    lmstudio_home: Path
    ollama: tuple[Path, ...]
    jan: tuple[Path, ...]
    hf_cache: tuple[Path, ...]


def import_folders() -> ImportFolders:
    """The folders on this machine, for this user."""
    home = Path.home()
    return ImportFolders(
        lmstudio_home=home,
        ollama=_given("OLLAMA_MODELS") or _ollama_defaults(home),
        jan=_given("JAN_DATA_FOLDER")
        or (platformdirs.user_data_path("Jan", appauthor=False, roaming=True) / "data",),
        hf_cache=_given("HF_HUB_CACHE") or (_hf_home(home) / "hub",),
    )


def _given(variable: str) -> tuple[Path, ...]:
    value = os.environ.get(variable)
    return (Path(value).expanduser().absolute(),) if value else ()


def _ollama_defaults(home: Path) -> tuple[Path, ...]:
    own = home / ".ollama" / "models"
    # Ollama's Linux installer runs it as a system user of its own.
    return (own, Path("/usr/share/ollama/.ollama/models")) if sys.platform == "linux" else (own,)


def _hf_home(home: Path) -> Path:
    for variable, below in (("HF_HOME", ""), ("XDG_CACHE_HOME", "huggingface")):
        value = os.environ.get(variable)
        if value:
            return Path(value).expanduser().absolute() / below
    return home / ".cache" / "huggingface"
