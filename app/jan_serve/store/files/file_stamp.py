"""Detects a changed file without reading it."""

from __future__ import annotations

from pathlib import Path


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Modification time (ns) and size (bytes); None if the file cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
