"""The calibrations of models, one small file each beside the index. Valid while the model's first file is unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from jan_serve.core.measurements import Calibration
from jan_serve.store.files.record_files import RecordFiles, record_file
from jan_serve.store.index import STATE_FOLDER, ModelEntry


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """name: canonical. size_bytes, modified_ns: of the model's first file when it was calibrated."""

    name: str
    size_bytes: int
    modified_ns: int
    calibration: Calibration
    version: int = 1


CALIBRATIONS: Final = RecordFiles(CalibrationRecord, "a calibration", max_bytes=1 << 16)


class CalibrationIndex:
    """The calibrations of one models folder. Every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "calibrations"

    def get(self, entry: ModelEntry) -> Calibration | None:
        """None if there is none, for another file of that name, and for a damaged or later record."""
        record = CALIBRATIONS.read(self._path(entry.name))
        stamp = (entry.name, entry.size_bytes, entry.modified_ns)
        if record is None or (record.name, record.size_bytes, record.modified_ns) != stamp:
            return None
        return record.calibration if 0 < record.calibration.temperature < float("inf") else None

    def put(self, entry: ModelEntry, calibration: Calibration) -> None:
        """Write a model's calibration, replacing an older one atomically. Raises OSError."""
        record = CalibrationRecord(
            name=entry.name,
            size_bytes=entry.size_bytes,
            modified_ns=entry.modified_ns,
            calibration=calibration,
        )
        CALIBRATIONS.write(self._path(entry.name), record)

    def remove(self, name: str) -> None:
        """Delete a model's calibration, if there is one. Raises OSError."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / record_file(name)
