"""What `bench`, `certify`, `selfcheck` and `calibrate` measured on this machine, in small files."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from jan_serve.core.measurements import Calibration, Certificate, SelfCheck, Speed, verdicts
from jan_serve.store.files import RecordFiles, T, private_folder
from jan_serve.store.index import STATE_FOLDER, ModelEntry


class Measurements(RecordFiles[T]):
    """The last measurement of each model or version, which only this user may read."""

    def put(self, name: str, record: T) -> None:
        private_folder(self.folder)
        super().put(name, record)


def speeds(data_dir: Path) -> Measurements[Speed]:
    return Measurements(Speed, "a speed", data_dir / "bench", key="format", mode=0o600)


def certificates(data_dir: Path) -> Measurements[Certificate]:
    return Measurements(Certificate, "a certificate", data_dir / "certificates", key="format", mode=0o600)


def certified(data_dir: Path, model: str) -> dict[str, str]:
    """The verdicts of the model's last certificate; empty if it has none."""
    found = certificates(data_dir).get(model)
    return verdicts(found) if found is not None else {}


class SelfChecks:
    """What `jan-serve selfcheck` measured. Every method blocks briefly on the disk. A version writes its own file
    alone, so neither an upgrade nor a downgrade loses what another one recorded."""

    def __init__(self, data_dir: Path) -> None:
        folder = data_dir / "selfcheck"
        self._files = Measurements(
            SelfCheck, "a self-check", folder, key="format", mode=0o600, file_of=_file_of_version
        )

    def all(self) -> tuple[SelfCheck, ...]:
        """The last one of each version, the newest last. Files that are damaged or of a later format are left out."""
        try:
            paths = sorted(path for path in self._files.folder.iterdir() if path.suffix == ".json")
        except OSError:
            return ()
        read = [check for path in paths if (check := self._files.read(path)) is not None]
        return tuple(sorted(read, key=lambda check: check.at))

    def before(self, version: str) -> SelfCheck | None:
        """What a run of this version is compared with: the newest of another version, else its own last one."""
        known = self.all()
        return next(
            (check for check in reversed(known) if check.version != version), known[-1] if known else None
        )

    def put(self, check: SelfCheck) -> None:
        """Write it in place of its version's last one. Raises OSError."""
        self._files.put(check.version, check)


def _file_of_version(version: str) -> str:
    return re.sub(r"[^0-9A-Za-z.+-]", "_", version) + ".json"


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """name: canonical. size_bytes, modified_ns: of the model's first file when it was calibrated."""

    name: str
    size_bytes: int
    modified_ns: int
    calibration: Calibration
    version: int = 1


class CalibrationIndex:
    """The calibrations of one models folder, valid while a model's first file is unchanged. Blocks on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._files = RecordFiles(
            CalibrationRecord, "a calibration", models_dir / STATE_FOLDER / "calibrations"
        )

    def get(self, entry: ModelEntry) -> Calibration | None:
        """None if there is none, for another file of that name, and for a damaged or later record."""
        record = self._files.get(entry.name)
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
        self._files.put(entry.name, record)

    def remove(self, name: str) -> None:
        """Delete a model's calibration, if there is one. Raises OSError."""
        self._files.remove(name)
