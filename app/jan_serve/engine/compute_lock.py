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
# A rest ends early when nobody has computed at so many looks: longer than from one step of a stream to its next.
_LOOKS: Final = 3
_LOOK_S: Final = 0.01


class _Files(NamedTuple):
    """Descriptors of the lock files, the same files for all teams."""

    gate: int
    cores: int


class ComputeLock:
    """The turns of one team, as a context manager. One thread at a time enters it; it blocks until it is its turn.

    Every team passes the gate first, one at a time: who waits there gets the cores before others can take them again.
    A team that computed for long lets those who wait at its end compute for as long, if they have so much to do.
    """

    def __init__(self, threads: int, folder: Path | None, *, others_first: bool = False) -> None:
        """threads: of the team. Two teams of at most half of the cores each compute at once.

        folder: of the lock files. Nobody waits without it, or where files cannot be locked (Windows, network drives).
        others_first: whether those who come just after a long turn compute before the team's next one, too.
        """
        self._others_first = others_first
        self._is_exclusive = 2 * threads > usable_cores()
        self._files = None if folder is None or sys.platform == "win32" else _opened(folder)
        self._begun = self._rests_until = 0.0
        self.is_contended = False
        """Whether another team computed when this one last asked."""

    def __enter__(self) -> None:
        if self._files is None or sys.platform == "win32":
            return
        try:
            self._rest(self._files)
            waits = _lock(self._files.gate, fcntl.LOCK_EX)
            waits |= _lock(self._files.cores, self._mode)
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
        now = time.monotonic()
        seconds = now - self._begun
        rests = seconds >= _LONG_S and (self._others_first or self._is_awaited(self._files))
        self._rests_until = now + min(seconds, _LONGEST_REST_S) if rests else 0.0
        fcntl.flock(self._files.cores, fcntl.LOCK_UN)

    @property
    def _mode(self) -> int:
        return fcntl.LOCK_EX if self._is_exclusive else fcntl.LOCK_SH

    def _is_awaited(self, files: _Files) -> bool:
        """Who waits for the cores holds the gate."""
        return not _is_free(files.gate, fcntl.LOCK_EX)

    def _rest(self, files: _Files) -> None:
        """Let others compute, as long as any does."""
        looks = 0
        while looks < _LOOKS and time.monotonic() < self._rests_until:
            time.sleep(_LOOK_S)
            looks = looks + 1 if _is_free(files.cores, self._mode) else 0
        self._rests_until = 0.0

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


def _is_free(file: int, mode: int) -> bool:
    """Whether it can be locked so at once."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _lock(file: int, mode: int) -> bool:
    """Whether another team held it."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, mode)
        return True
    return False
