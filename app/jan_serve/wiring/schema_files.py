"""JSON Schemas that the schemas of requests refer to: the user's files."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urldefrag

import msgspec

from jan_serve.store.files.exhaustion import raise_if_exhausted

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1 << 20
MAX_FILES: Final = 1_000


class SchemaFiles:
    """The `*.json` files of a folder. An edit applies from the next request."""

    def __init__(self, folder: Path) -> None:
        """folder: may not exist; other files in it are ignored."""
        self._folder = folder
        self._seen: dict[Path, tuple[int, int]] = {}
        self._schemas: dict[str, Any] = {}
        self._reading = threading.Lock()

    def read(self) -> Mapping[str, Any]:
        """Schemas by URI: by their `$id` and by their path in the folder. A file that cannot be used is logged once.

        Reads what has changed; blocks on the disk, one thread at a time. Raises Unavailable.
        """
        with self._reading:
            return self._read()

    def _read(self) -> Mapping[str, Any]:
        seen: dict[Path, tuple[int, int]] = {}
        for path in itertools.islice(sorted(self._folder.rglob("*.json")), MAX_FILES):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                seen[path] = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._schemas = self._parsed(seen)
            self._seen = seen
        return self._schemas

    def _parsed(self, files: Iterable[Path]) -> dict[str, Any]:
        by_path: dict[str, Any] = {}
        by_id: dict[str, Any] = {}
        for path in files:
            try:
                schema = _schema(path)
            except (OSError, ValueError, RecursionError) as error:
                if isinstance(error, OSError):
                    raise_if_exhausted(error)
                logger.warning("the schema %s is not used: %s", path, error)
                continue
            by_path[path.relative_to(self._folder).as_posix()] = schema
            for key in ("$id", "id"):
                if isinstance(name := schema.get(key), str):
                    by_id.setdefault(urldefrag(name)[0], schema)
        return {**by_path, **by_id}


def _schema(path: Path) -> dict[str, Any]:
    """Raises OSError, ValueError or RecursionError."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return msgspec.json.decode(data, type=dict[str, Any])
