"""What is known about the files in the models folder beyond their bytes: source, digests, aliases, header facts.

The folder itself says which models there are; the index only adds to that. It has one small file for each model, so
that a damaged one hides nothing but itself, and so that no two writers ever change the same file. A record counts as
long as the size and the time of change of its first file are what they were.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from jan_serve.core.listed_model import HeaderFacts
from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

STATE_FOLDER: Final = ".jan-serve"
"""Hidden folder in the models folder for the index and for downloads under way. Listing skips hidden folders."""
_MAX_RECORD_BYTES: Final = 1 << 20
_MAX_RECORDS: Final = 20_000
RECORD_STEPS: Steps = {}
"""From version 1 of a record on; see `versions`."""

_log: Final = logging.getLogger("jan_serve.store")

SourceKind = Literal["hub", "ollama", "lmstudio", "jan", "hf-cache", "folder"]


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a model comes from.

    name: `org/repo` for the hub, the name that the other program uses for an import. path: the linked original.
    revision: the commit. endpoint: the hub, where it is not the public one.
    """

    kind: SourceKind
    name: str = ""
    revision: str | None = None
    path: str | None = None
    endpoint: str | None = None


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a model. path: relative to the models folder, with `/`. sha256: None where it was never computed."""

    path: str
    size_bytes: int
    sha256: str | None = None


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. files: the model's own, in order; projector: the multimodal projector beside it.

    modified_ns: of the first file when the record was made. added_at: seconds since 1970.
    """

    name: str
    source: Source
    files: tuple[FileRecord, ...]
    modified_ns: int
    added_at: float
    projector: FileRecord | None = None
    aliases: tuple[str, ...] = ()
    facts: HeaderFacts | None = None
    version: int = 1

    def describes(self, size_bytes: int, modified_ns: int) -> bool:
        """Whether the model's first file is still the one that was recorded."""
        return bool(self.files) and (self.files[0].size_bytes, self.modified_ns) == (size_bytes, modified_ns)


class ModelIndex:
    """The records of one models folder. Any thread may ask; every method blocks on the disk for a short while."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "index"
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], ModelRecord | None]] = {}

    def records(self) -> dict[str, ModelRecord]:
        """Every readable record by the model's name. Files that did not change are not read again."""
        try:
            entries = [entry for entry in os.scandir(self._folder) if entry.name.endswith(".json")]
        except OSError:
            return {}
        found: dict[str, ModelRecord] = {}
        with self._lock:
            known, self._read = self._read, {}
            for entry in entries[:_MAX_RECORDS]:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                stamp = (status.st_mtime_ns, status.st_size)
                cached = known.get(entry.name)
                record = cached[1] if cached and cached[0] == stamp else _read_record(Path(entry.path))
                self._read[entry.name] = (stamp, record)
                if record is not None and _file_name(record.name) == entry.name:
                    found[record.name] = record
        return found

    def put(self, record: ModelRecord) -> None:
        """Write a record, in place of an older one of that name. Raises OSError; what was there before stays then."""
        current = msgspec.structs.replace(record, version=latest(RECORD_STEPS))
        content = msgspec.json.format(msgspec.json.encode(current), indent=1)
        write_atomically(self._folder / _file_name(record.name), content)

    def remove(self, name: str) -> None:
        """Forget a model. Nothing happens where it is not known."""
        (self._folder / _file_name(name)).unlink(missing_ok=True)


def _file_name(name: str) -> str:
    """Names are paths and may be long: their digest is a file name on every platform."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"


def _read_record(path: Path) -> ModelRecord | None:
    """None for what is damaged or of a later version: the model is then listed without it, and the file stays."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_RECORD_BYTES + 1)
        values = msgspec.json.decode(content, type=dict[str, Any])
        upgrade(values, "version", RECORD_STEPS)
        record = msgspec.convert(values, ModelRecord)
    except LaterVersion:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning(
            "a record of the model index cannot be read", extra={"file": path.name, "reason": str(error)}
        )
        return None
    return record if record.files else None
