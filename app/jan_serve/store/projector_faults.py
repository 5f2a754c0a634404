"""Projectors that a load found unusable, kept so that no list promises sight. Valid while their file is unchanged."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.files.file_stamp import file_stamp
from jan_serve.store.index import STATE_FOLDER

_MAX_BYTES: Final = 1 << 20


class _Fault(msgspec.Struct, frozen=True):
    """stamp: of the projector's file, as in `file_stamp`."""

    stamp: tuple[int, int]
    reason: str


_decoder: Final = msgspec.json.Decoder(dict[str, _Fault])


class ProjectorFaults:
    """The faults in one models folder, for all its processes. Thread-safe; every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._file = models_dir / STATE_FOLDER / "projector-faults.json"
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._faults: dict[str, _Fault] = {}

    def reason(self, projector: Path) -> str:
        """Why the last load did not use this file; empty if it did, or if there was none."""
        with self._lock:
            self._read()
            fault = self._faults.get(str(projector))
        return fault.reason if fault is not None and fault.stamp == file_stamp(projector) else ""

    def note(self, projector: Path, reason: str) -> None:
        """What a load showed. Without write access, only this process knows it."""
        stamp = file_stamp(projector)
        with self._lock:
            self._read()
            before = self._faults.get(str(projector))
            if reason and stamp is not None:
                self._faults[str(projector)] = _Fault(stamp, reason)
            else:
                self._faults.pop(str(projector), None)
            if self._faults.get(str(projector)) == before:
                return
            with contextlib.suppress(OSError):
                write_atomically(self._file, msgspec.json.encode(self._faults))
                self._read_at = file_stamp(self._file)

    def _read(self) -> None:
        stamp = file_stamp(self._file)
        if stamp is None or stamp == self._read_at or stamp[1] > _MAX_BYTES:
            return
        self._read_at = stamp
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            self._faults = _decoder.decode(self._file.read_bytes())
