"""A folder per process below a root that several processes share, also in containers with a common disk.

A live process holds an OS lock in its folder. Process ids would not do: containers reuse them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import filelock

_LOCK: Final = ".lock"
_LOCK_TIMEOUT_S: Final = 30.0
"""Other processes hold the root's lock only to create or delete folders."""


class ProcessFolder:
    """Created at first use, deleted on close. Not thread-safe; methods block on the disk."""

    def __init__(self, root: Path) -> None:
        """root: created if missing; holds only such folders."""
        self._root = root
        self._path: Path | None = None
        self._lock: filelock.BaseFileLock | None = None

    def path(self) -> Path:
        """The folder, readable by this user only. Deletes the folders of dead processes first.

        Raises OSError.
        """
        if self._path is None:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Between its creation and its lock, a folder would look abandoned.
            with filelock.FileLock(self._root / _LOCK, timeout=_LOCK_TIMEOUT_S, thread_local=False):
                self._delete_abandoned()
                path = Path(tempfile.mkdtemp(dir=self._root))
                lock = _lock_of(path)
                lock.acquire(blocking=False)
            self._path, self._lock = path, lock
        return self._path

    def close(self) -> None:
        """Delete the folder with its content. The next `path()` creates another."""
        if self._path is None or self._lock is None:
            return
        # Windows cannot delete open files.
        self._lock.release()
        shutil.rmtree(self._path, ignore_errors=True)
        self._path = self._lock = None

    def _delete_abandoned(self) -> None:
        for folder in self._root.iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue
            lock = _lock_of(folder)
            try:
                lock.acquire(blocking=False)
            except OSError:  # held, or not ours to delete
                continue
            lock.release()
            shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(folder / _LOCK, thread_local=False)
