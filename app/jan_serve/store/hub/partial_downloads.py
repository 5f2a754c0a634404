"""Partial downloads: each writer has its own file, and interrupted ones are kept to resume from.

They are in a hidden folder of the models folder, so that the last step is a rename on one file system and listings skip
them. A file is named after its expected SHA-256 digest and its current writer: two writers never share a file, even
without file locks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import filelock
import msgspec
import psutil

from jan_serve.store.files.small_files import TEMPORARY_SUFFIX
from jan_serve.store.index import STATE_FOLDER

_KEPT: Final = ".part"
_WRITING: Final = ".writing"
_LOCK: Final = ".lock"
_KEPT_FOR_S: Final = 14 * 86_400
_REMOTE_ORPHAN_AFTER_S: Final = 3600
_STALE_TEMPORARY_AFTER_S: Final = 3600

_HOST: Final = hashlib.sha256(socket.gethostname().encode("utf-8", "replace")).hexdigest()[:8]
_own_tokens: Final[set[str]] = set()
_own_lock: Final = threading.Lock()


class PartialFile(msgspec.Struct, frozen=True):
    """A file that only this process writes. n_kept: unverified bytes from an earlier attempt."""

    path: Path
    digest: str
    token: str
    n_kept: int

    def keep(self) -> None:
        """Stop writing; the next claim of this digest resumes from here. An empty file is deleted."""
        with contextlib.suppress(OSError):
            if self.path.stat().st_size:
                os.replace(self.path, self.path.with_name(self.digest + _KEPT))
            else:
                self.path.unlink()
        self._release()

    def discard(self) -> None:
        """Stop writing and delete the file."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._release()

    def place(self, target: Path) -> None:
        """Rename to `target`, replacing it. Raises OSError; the caller then keeps or discards the file."""
        os.replace(self.path, target)
        self._release()

    def _release(self) -> None:
        with _own_lock:
            _own_tokens.discard(self.token)


class PartialFolder:
    """The partial downloads of one models folder. Every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "incoming"
        self._index_folder = models_dir / STATE_FOLDER / "index"

    def lock(self, digest: str) -> filelock.BaseFileLock:
        """The unacquired lock for transfers of this digest. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(self._folder / (digest + _LOCK), thread_local=False)

    def claim(self, digest: str) -> PartialFile:
        """A file for this digest, with the data of a dead writer, if any. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        token = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
        with _own_lock:
            _own_tokens.add(token)
        path = self._folder / f"{digest}.{token}{_WRITING}"
        candidates = [self._folder / (digest + _KEPT), *(p for p in self._writing(digest) if _is_orphan(p))]
        for candidate in candidates:
            # The rename is the claim: only one of several writers succeeds.
            with contextlib.suppress(OSError):
                os.rename(candidate, path)
                return PartialFile(path, digest, token, path.stat().st_size)
        path.touch(exist_ok=False)
        return PartialFile(path, digest, token, 0)

    def kept_bytes(self, digest: str) -> int:
        """Bytes of this digest from interrupted writers."""
        candidates = [self._folder / (digest + _KEPT), *(p for p in self._writing(digest) if _is_orphan(p))]
        sizes = [_size(path) for path in candidates]
        return max(sizes, default=0)

    def sweep(self) -> int:
        """Delete stale files; returns their number. Those of dead writers are kept instead. Suppresses OSError."""
        count = 0
        now = time.time()
        for path in self._all(self._folder):
            if path.name.endswith(_WRITING):
                if _is_orphan(path):
                    self._unless_locked(path, _keep)
            elif path.name.endswith((_KEPT, _LOCK)) and now - _changed_at(path, now) > _KEPT_FOR_S:
                # Acquiring a lock leaves its file's age: an old one may be in use.
                is_lock = path.name.endswith(_LOCK)
                count += self._unless_locked(path, _delete) if is_lock else _delete(path)
        for path in self._all(self._index_folder):
            if (
                path.name.endswith(TEMPORARY_SUFFIX)
                and now - _changed_at(path, now) > _STALE_TEMPORARY_AFTER_S
            ):
                count += _delete(path)
        return count

    def _unless_locked(self, path: Path, work: Callable[[Path], int]) -> int:
        """The result of `work` on a file, which runs with the lock of its digest; 0 at once if that is not free."""
        # Process ids prove no death: those of other users and of other containers may be invisible.
        with (
            contextlib.suppress(OSError, NotImplementedError),
            self.lock(_digest_of(path)).acquire(timeout=0),
        ):
            return work(path)
        return 0

    def _writing(self, digest: str) -> list[Path]:
        return [
            path
            for path in self._all(self._folder)
            if path.name.startswith(digest) and path.suffix == _WRITING
        ]

    @staticmethod
    def _all(folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except OSError:
            return []


def _is_orphan(path: Path) -> bool:
    """Whether the writer of a `.writing` file is dead; for one on another machine (shared folder), judged by age."""
    token = path.name[: -len(_WRITING)].rpartition(".")[2]
    host, _, rest = token.partition("-")
    pid = rest.partition("-")[0]
    if host != _HOST or not pid.isdigit():
        now = time.time()
        return now - _changed_at(path, now) > _REMOTE_ORPHAN_AFTER_S
    if int(pid) == os.getpid():
        with _own_lock:
            return token not in _own_tokens
    return not psutil.pid_exists(int(pid))


def _digest_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _changed_at(path: Path, otherwise: float) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return otherwise


def _keep(path: Path) -> int:
    """Returns 0: nothing is deleted."""
    os.replace(path, path.with_name(_digest_of(path) + _KEPT))
    return 0


def _delete(path: Path) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return 1
