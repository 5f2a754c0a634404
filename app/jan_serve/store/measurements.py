"""What `jan-serve bench` and `jan-serve certify` found last of each model on this machine, in small files."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from jan_serve.core.measurements import Certificate, Speed, verdicts
from jan_serve.store.files.record_files import RecordFiles, record_file
from jan_serve.store.files.small_files import private_folder

T = TypeVar("T", bound=msgspec.Struct)


class Measurements(Generic[T]):
    """Every method blocks briefly on the disk."""

    def __init__(self, kind: type[T], folder: Path) -> None:
        self._files = RecordFiles(
            kind, f"a {kind.__name__.lower()}", max_bytes=1 << 16, key="format", mode=0o600
        )
        self._folder = folder

    def last(self, model: str) -> T | None:
        """None if there is none, or its file is damaged (which is logged)."""
        return self._files.read(self._path(model))

    def put(self, model: str, found: T) -> None:
        """Raises OSError."""
        private_folder(self._folder)
        self._files.write(self._path(model), found)

    def _path(self, model: str) -> Path:
        return self._folder / record_file(model)


def speeds(data_dir: Path) -> Measurements[Speed]:
    return Measurements(Speed, data_dir / "bench")


def certificates(data_dir: Path) -> Measurements[Certificate]:
    return Measurements(Certificate, data_dir / "certificates")


def certified(data_dir: Path, model: str) -> dict[str, str]:
    """The verdicts of the model's last certificate; empty if it has none."""
    found = certificates(data_dir).last(model)
    return verdicts(found) if found is not None else {}
