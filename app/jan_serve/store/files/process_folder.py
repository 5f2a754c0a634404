"""A folder of one process among those of others, on one machine or in containers that share a disk.

A process is told to be alive by an OS lock that it holds, never by its number: containers repeat those.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import filelock

_LOCK: Final = ".lock"
_PATIENCE_S: Final = 30.0
"""For other processes that make or delete folders; nothing else is done under the lock of the root."""


class ProcessFolder:
    """Made when it is needed, under a root that several processes use. It lasts as long as this object at most.

    One thread at a time; methods block on the disk.
    """

    def __init__(self, root: Path) -> None:
        """root: made when it is needed; what else is in it belongs to processes that do the same."""
        self._root = root
        self._path: Path | None = None
        self._lock: filelock.BaseFileLock | None = None

    def path(self) -> Path:
        """The folder, which only this account can read. Folders of processes that are gone are deleted before.

        Raises OSError.
        """
        if self._path is None:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Between being made and being locked, a folder would look like one of a process that is gone.
            with filelock.FileLock(self._root / _LOCK, timeout=_PATIENCE_S, thread_local=False):
                self._delete_others()
                path = Path(tempfile.mkdtemp(dir=self._root))
                lock = _lock_of(path)
                lock.acquire(blocking=False)
            self._path, self._lock = path, lock
        return self._path

    def close(self) -> None:
        """Delete it with all that is in it. The next `path()` makes another one."""
        if self._path is None or self._lock is None:
            return
        # Windows does not delete what is open.
        self._lock.release()
        shutil.rmtree(self._path, ignore_errors=True)
        self._path = self._lock = None

    def _delete_others(self) -> None:
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
