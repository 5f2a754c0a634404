"""The model that was loaded last to write text: the default of a models folder with several."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.index import STATE_FOLDER

_MAX_BYTES: Final = 4096


class LastModel:
    """Of one models folder, for all processes that use it. Each method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._file = models_dir / STATE_FOLDER / "last-model"
        self._noted: str | None = None

    def name(self) -> str | None:
        """Its canonical name. None if there is none; the model may be gone."""
        with contextlib.suppress(OSError), self._file.open("rb") as file:
            return os.fsdecode(file.read(_MAX_BYTES))
        return self._noted

    def note(self, name: str) -> None:
        """Without write access, only this process knows it."""
        if name != self.name():
            self._noted = name
            with contextlib.suppress(OSError):
                write_atomically(self._file, os.fsencode(name))
