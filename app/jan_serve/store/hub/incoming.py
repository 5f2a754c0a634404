"""Files under way: each writer has one of its own, and what a stopped writer leaves is kept to go on from.

They lie in a hidden folder of the models folder, so that the last step is a rename on one file system and no listing
ever shows them. A file is named after the SHA-256 digest that it will have, and after its writer while one is at work:
two writers never share a file, also where file locks do nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import filelock
import psutil

from jan_serve.store.files.atomic_file import TEMPORARY_SUFFIX
from jan_serve.store.index import STATE_FOLDER

_KEPT: Final = ".part"
_WRITING: Final = ".writing"
_LOCK: Final = ".lock"
_KEPT_FOR_S: Final = 14 * 86_400
_STRANGER_IS_GONE_AFTER_S: Final = 3600
_TEMPORARY_IS_OLD_AFTER_S: Final = 3600

_HOST: Final = hashlib.sha256(socket.gethostname().encode("utf-8", "replace")).hexdigest()[:8]
_own_tokens: Final[set[str]] = set()
_own_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that this process alone writes. `n_kept`: bytes of an earlier try that it begins with, unchecked."""

    path: Path
    digest: str
    token: str
    n_kept: int

    def keep(self) -> None:
        """Stop writing; the next claim of this digest goes on from here."""
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path.with_name(self.digest + _KEPT))
        self._release()

    def discard(self) -> None:
        """Stop writing and delete what there is."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._release()

    def place(self, target: Path) -> None:
        """Rename to `target`, in place of what is there. Raises OSError; the file is then still to be discarded."""
        os.replace(self.path, target)
        self._release()

    def _release(self) -> None:
        with _own_lock:
            _own_tokens.discard(self.token)


class IncomingFolder:
    """The files under way of one models folder. Every method blocks on the disk for a short while."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "incoming"
        self._index_folder = models_dir / STATE_FOLDER / "index"

    def lock(self, digest: str) -> filelock.BaseFileLock:
        """The lock that lets one process transfer this digest. Not taken yet. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(self._folder / (digest + _LOCK), thread_local=False)

    def claim(self, digest: str) -> IncomingFile:
        """A file for this digest, with the bytes that a writer which is gone has left. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        token = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
        with _own_lock:
            _own_tokens.add(token)
        path = self._folder / f"{digest}.{token}{_WRITING}"
        left = [self._folder / (digest + _KEPT), *(p for p in self._writing(digest) if _is_orphan(p))]
        for candidate in left:
            # The rename is the claim: of several writers that want the same remains, one gets them.
            with contextlib.suppress(OSError):
                os.rename(candidate, path)
                return IncomingFile(path, digest, token, path.stat().st_size)
        path.touch(exist_ok=False)
        return IncomingFile(path, digest, token, 0)

    def kept_bytes(self, digest: str) -> int:
        """How much of this digest is here already, from a writer that stopped."""
        left = [self._folder / (digest + _KEPT), *(p for p in self._writing(digest) if _is_orphan(p))]
        sizes = [_size(path) for path in left]
        return max(sizes, default=0)

    def sweep(self) -> int:
        """Delete what nobody will go on with; returns how many files. Never raises: it is housekeeping."""
        count = 0
        now = time.time()
        for path in self._all(self._folder):
            if path.name.endswith(_WRITING) and _is_orphan(path):
                digest = path.name.partition(".")[0]
                with contextlib.suppress(OSError):
                    os.replace(path, path.with_name(digest + _KEPT))
            elif path.name.endswith((_KEPT, _LOCK)) and now - _changed_at(path, now) > _KEPT_FOR_S:
                count += _delete(path)
        for path in self._all(self._index_folder):
            if (
                path.name.endswith(TEMPORARY_SUFFIX)
                and now - _changed_at(path, now) > _TEMPORARY_IS_OLD_AFTER_S
            ):
                count += _delete(path)
        return count

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
    """Whether the writer of a `.writing` file is gone. On another machine (a shared folder) only time can tell."""
    token = path.name[: -len(_WRITING)].rpartition(".")[2]
    host, _, rest = token.partition("-")
    pid = rest.partition("-")[0]
    if host != _HOST or not pid.isdigit():
        now = time.time()
        return now - _changed_at(path, now) > _STRANGER_IS_GONE_AFTER_S
    if int(pid) == os.getpid():
        with _own_lock:
            return token not in _own_tokens
    return not psutil.pid_exists(int(pid))


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


def _delete(path: Path) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return 1
