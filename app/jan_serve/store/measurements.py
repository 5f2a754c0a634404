"""What `bench`, `certify`, `selfcheck` and `calibrate` measured on this machine, in small files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from jan_serve.core.measurements import Calibration, Certificate, SelfCheck, Speed, verdicts
from jan_serve.store.files import RecordFiles, private_folder, record_file
from jan_serve.store.index import STATE_FOLDER, ModelEntry

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


SELF_CHECKS: Final = RecordFiles(SelfCheck, "a self-check", max_bytes=1 << 16, key="format", mode=0o600)


class SelfChecks:
    """The measurements in one data folder. Every method blocks briefly on the disk."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "selfcheck"

    def all(self) -> tuple[SelfCheck, ...]:
        """The last one of each version, the newest last. Files that are damaged or of a later format are left out."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".json")
        except OSError:
            return ()
        read = [check for path in paths if (check := SELF_CHECKS.read(path)) is not None]
        return tuple(sorted(read, key=lambda check: check.at))

    def before(self, version: str) -> SelfCheck | None:
        """What a run of this version is compared with: the newest of another version, else its own last one."""
        known = self.all()
        return next(
            (check for check in reversed(known) if check.version != version), known[-1] if known else None
        )

    def put(self, check: SelfCheck) -> None:
        """Write it in place of its version's last one. Raises OSError."""
        name = re.sub(r"[^0-9A-Za-z.+-]", "_", check.version)
        private_folder(self._folder)
        SELF_CHECKS.write(self._folder / f"{name}.json", check)


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
