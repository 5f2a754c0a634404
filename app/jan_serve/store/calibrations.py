"""The calibrations of models, one small file each beside the index. Valid while the model's first file is unchanged."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any, Final

import msgspec

from jan_serve.core.calibration import Calibration
from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.index import STATE_FOLDER
from jan_serve.store.model_entry import ModelEntry
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

_MAX_BYTES: Final = 1 << 16
CALIBRATION_STEPS: Steps = {}
"""See `versions`."""

_log: Final = logging.getLogger("jan_serve.store")


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """name: canonical. size_bytes, modified_ns: of the model's first file when it was calibrated."""

    name: str
    size_bytes: int
    modified_ns: int
    calibration: Calibration
    version: int = 1


class CalibrationIndex:
    """The calibrations of one models folder. Every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "calibrations"

    def get(self, entry: ModelEntry) -> Calibration | None:
        """None if there is none, for another file of that name, and for a damaged or later record."""
        record = _read(self._path(entry.name))
        stamp = (entry.name, entry.size_bytes, entry.modified_ns)
        if record is None or (record.name, record.size_bytes, record.modified_ns) != stamp:
            return None
        return record.calibration

    def put(self, entry: ModelEntry, calibration: Calibration) -> None:
        """Write a model's calibration, replacing an older one atomically. Raises OSError."""
        record = CalibrationRecord(
            name=entry.name,
            size_bytes=entry.size_bytes,
            modified_ns=entry.modified_ns,
            calibration=calibration,
            version=latest(CALIBRATION_STEPS),
        )
        write_atomically(self._path(entry.name), msgspec.json.format(msgspec.json.encode(record), indent=1))

    def remove(self, name: str) -> None:
        """Delete a model's calibration, if there is one. Raises OSError."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{digest[:32]}.json"


def _read(path: Path) -> CalibrationRecord | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        values = msgspec.json.decode(content, type=dict[str, Any])
        upgrade(values, "version", CALIBRATION_STEPS)
        record = msgspec.convert(values, CalibrationRecord)
    except (FileNotFoundError, LaterVersion):
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("a calibration cannot be read", extra={"file": path.name, "reason": str(error)})
        return None
    return record if 0 < record.calibration.temperature < float("inf") else None
