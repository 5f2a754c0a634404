"""Folders that are kept between installations, and locks on them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from scripts.installer.commands import say


def cache_folder(checkout: Path) -> Path:
    """Where compiled wheels and tools are kept: in the user's cache, or in the checkout if that cannot be written."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home, "jan-serve-build")
    if _writable(folder):
        return folder
    inside = checkout / ".cache" / "jan-serve-build"
    say(f"{folder} cannot be written: compiled files are kept in {inside}")
    inside.mkdir(parents=True, exist_ok=True)
    return inside


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def locked(folder: Path, waiting: str) -> Generator[None]:
    """Hold the lock of a folder, which ends with this process at the latest. waiting: said if another one has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def work_folder(name: str) -> Generator[Path]:
    """A temporary folder, removed at the end. Those of this name that killed installations left are removed first.

    name: who has it holds a lock, as of two that begin at once the second one may take the first one's folder for a
    left one.
    """
    for left in Path(tempfile.gettempdir()).glob(f"jan-serve-{name}-*"):
        # An error shows that it is another user's, or in use.
        with contextlib.suppress(OSError):
            _remove_unlocked(left)
    with tempfile.TemporaryDirectory(prefix=f"jan-serve-{name}-") as folder:
        path = Path(folder)
        with locked(path, f"waiting for {path}"):
            yield path


def _remove_unlocked(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(handle)
