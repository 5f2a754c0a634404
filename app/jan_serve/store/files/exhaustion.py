"""Errors of the system that say nothing about the file that was opened."""

from __future__ import annotations

import errno
from typing import Final

from jan_serve.errors import Unavailable

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def raise_if_exhausted(error: OSError) -> None:
    """Raises Unavailable if this process has no file descriptor or memory left: what is missing then may be there."""
    if error.errno in _EXHAUSTED:
        raise Unavailable(f"The server cannot open more files now ({error.strerror}).") from error
