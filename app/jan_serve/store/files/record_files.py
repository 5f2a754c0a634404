"""Reads and writes small JSON files, one for each record.

Records are bounded and written atomically. A file that is damaged costs its own record alone, and stays. So does one
that a later version wrote.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from jan_serve.store.files.file_errors import raise_if_exhausted
from jan_serve.store.files.small_files import write_atomically

FORMAT: Final = 1
"""The only format of files yet. New fields with defaults need no other."""


class LaterFormat(Exception):
    """A later jan-serve wrote the content."""

    def __init__(self, found: int) -> None:
        super().__init__(f"version {found}; this jan-serve knows versions up to {FORMAT}")
        self.found = found


def check_format(content: Mapping[str, Any], key: str) -> None:
    """key: of the format; missing means the first. Raises LaterFormat, and ValueError for an invalid one."""
    found = content.get(key, FORMAT)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{key} must be a whole number from 1 on")
    if found > FORMAT:
        raise LaterFormat(found)


T = TypeVar("T", bound=msgspec.Struct)

_log: Final = logging.getLogger("jan_serve.store")


class RecordFiles(Generic[T]):
    """Reads and writes records of one type. Blocks briefly on the disk."""

    def __init__(
        self, record: type[T], what: str, *, max_bytes: int, key: str = "version", mode: int | None = None
    ) -> None:
        """what: for the log. key: the field of the format. mode: see `write_atomically`."""
        self._record = record
        self._decoder = msgspec.json.Decoder(record)
        self._what = what
        self._max_bytes = max_bytes
        self._key = key
        self._mode = mode

    def read(self, path: str | Path) -> T | None:
        """None if the file is missing, damaged (which is logged) or of a later version. Raises Unavailable."""
        try:
            return self._checked(path)
        except (FileNotFoundError, LaterFormat):
            return None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            extra = {"file": os.path.basename(path), "reason": str(error)}
            _log.warning("%s cannot be read", self._what, extra=extra)
            return None

    def is_later(self, path: Path) -> bool:
        """Whether a later version wrote the file: it says more than this one can."""
        try:
            self._checked(path)
        except LaterFormat:
            return True
        except (OSError, ValueError, RecursionError):
            return False
        return False

    def write(self, path: Path, record: T) -> None:
        """Replace the file atomically. Raises OSError."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=1), mode=self._mode)

    def _checked(self, path: str | Path) -> T:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > self._max_bytes:
                raise ValueError("it is too large")
            content = file.read()
        try:
            record = self._decoder.decode(content)
        except msgspec.ValidationError:
            # A later version may have other fields.
            check_format(msgspec.json.decode(content, type=dict[str, Any]), self._key)
            raise
        check_format({self._key: getattr(record, self._key)}, self._key)
        return record


def record_file(name: str) -> str:
    """The file name of a record: a digest, because names contain `/` and may be too long."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"
