"""Teams of threads that compute with the same cores take turns: those of all models, and those of an encoder of images.

Threads of llama.cpp spin while they wait for each other, so two teams on the same cores slow each other tens of times
(ADR 0045). Files are locked (flock), since a lock ends with its process, however that ends.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

_LONG_S: Final = 0.1
_LONGEST_REST_S: Final = 1.0


class _Files(NamedTuple):
    """Descriptors of the lock files, the same files for all teams."""

    gate: int
    cores: int


class ComputeTurns:
    """The turns of one team, as a context manager. One thread at a time enters it; it blocks until it is its turn.

    Every team passes the gate first, one at a time: who waits there gets the cores before others can take them again.
    A team that computed for long while others waited lets them compute for as long.
    """

    def __init__(self, threads: int, folder: Path | None) -> None:
        """threads: of the team. Two teams of at most half of the cores each compute at once.

        folder: of the lock files. Nobody waits without it, or where files cannot be locked (Windows, network drives).
        """
        self._is_exclusive = 2 * threads > usable_cores()
        self._files = None if folder is None or sys.platform == "win32" else _opened(folder)
        self._begun = self._rests_until = 0.0
        self.is_contended = False
        """Whether another team computed when this one last asked."""

    def __enter__(self) -> None:
        if self._files is None or sys.platform == "win32":
            return
        if (rest_s := self._rests_until - time.monotonic()) > 0:
            time.sleep(rest_s)
        try:
            waits = _lock(self._files.gate, fcntl.LOCK_EX)
            waits |= _lock(self._files.cores, fcntl.LOCK_EX if self._is_exclusive else fcntl.LOCK_SH)
            fcntl.flock(self._files.gate, fcntl.LOCK_UN)
        except OSError as error:  # on a network file system without locks
            _warn(error)
            self._close()
            return
        self.is_contended = waits
        self._begun = time.monotonic()

    def __exit__(self, *exc_info: object) -> None:
        if self._files is None or sys.platform == "win32":
            return
        fcntl.flock(self._files.cores, fcntl.LOCK_UN)
        now = time.monotonic()
        seconds = now - self._begun
        is_long = self.is_contended and seconds >= _LONG_S
        self._rests_until = now + min(seconds, _LONGEST_REST_S) if is_long else 0.0

    def _close(self) -> None:
        """Nobody waits any more. Closing a file unlocks it."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)


def usable_cores() -> int:
    """The logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _opened(folder: Path) -> _Files | None:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _Files(*(os.open(folder / name, flags, 0o600) for name in ("gate.lock", "cores.lock")))
    except OSError as error:
        _warn(error)
        return None


def _warn(error: OSError) -> None:
    logger.warning("models do not take turns at the cores: %s", error)


def _lock(file: int, mode: int) -> bool:
    """Whether another team held it."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, mode)
        return True
    return False
