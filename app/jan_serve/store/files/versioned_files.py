"""Upgrades files that earlier versions wrote, and reads and writes small JSON files, one for each record.

Starting a newer jan-serve rewrites no file: older content is upgraded in memory at each read. An interrupted or
reverted upgrade therefore leaves all files unchanged.

Records are bounded and written atomically. A file that is damaged costs its own record alone, and stays. So does one
that a later version wrote.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from jan_serve.store.files.file_errors import raise_if_exhausted
from jan_serve.store.files.small_files import write_atomically

Steps = Mapping[int, Callable[[MutableMapping[str, Any]], None]]
"""By the version that a step upgrades, from 1 without gaps. A step changes the content in place."""


class LaterVersion(Exception):
    """A later jan-serve wrote the content."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"version {version}; this jan-serve knows versions up to {known}")
        self.version = version
        self.known = known


def latest(steps: Steps) -> int:
    """The version after all steps."""
    return len(steps) + 1


def upgrade(content: MutableMapping[str, Any], key: str, steps: Steps) -> int:
    """Upgrade `content` to the latest version in place; returns its previous version.

    key: of the version; missing means 1, and is not added while the latest version is 1. Raises LaterVersion, and
    ValueError for an invalid version, before any change.
    """
    version = content.get(key, 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{key} must be a whole number from 1 on")
    if version > latest(steps):
        raise LaterVersion(version, latest(steps))
    for number in range(version, latest(steps)):
        steps[number](content)
        content[key] = number + 1
    return int(version)


T = TypeVar("T", bound=msgspec.Struct)

_log: Final = logging.getLogger("jan_serve.store")


class RecordFiles(Generic[T]):
    """Reads and writes records of one type. Blocks briefly on the disk."""

    def __init__(
        self, record: type[T], what: str, *, max_bytes: int, key: str = "version", mode: int | None = None
    ) -> None:
        """what: for the log. key: the field of the version. mode: see `write_atomically`."""
        self.steps: Steps = {}
        """See `versions`."""
        self._record = record
        self._decoder = msgspec.json.Decoder(record)
        self._what = what
        self._max_bytes = max_bytes
        self._key = key
        self._mode = mode

    def read(self, path: str | Path) -> T | None:
        """None if the file is missing, damaged (which is logged) or of a later version. Raises Unavailable."""
        try:
            return self._upgraded(path)
        except (FileNotFoundError, LaterVersion):
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            extra = {"file": os.path.basename(path), "reason": str(error)}
            _log.warning("%s cannot be read", self._what, extra=extra)
            return None

    def is_later(self, path: Path) -> bool:
        """Whether a later version wrote the file: it says more than this one can."""
        try:
            self._upgraded(path)
        except LaterVersion:
            return True
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return False
        return False

    def write(self, path: Path, record: T) -> None:
        """Replace the file atomically. Raises OSError."""
        current = msgspec.structs.replace(record, **{self._key: latest(self.steps)})
        write_atomically(path, msgspec.json.format(msgspec.json.encode(current), indent=1), mode=self._mode)

    def _upgraded(self, path: str | Path) -> T:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > self._max_bytes:
                raise ValueError("it is too large")
            content = file.read()
        try:
            record = self._decoder.decode(content)
            if getattr(record, self._key) == latest(self.steps):
                return record
        except msgspec.ValidationError:
            pass  # an earlier version may have had other fields
        values = msgspec.json.decode(content, type=dict[str, Any])
        upgrade(values, self._key, self.steps)
        return msgspec.convert(values, self._record)


def record_file(name: str) -> str:
    """The file name of a record: a digest, because names contain `/` and may be too long."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"
