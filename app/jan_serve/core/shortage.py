"""Tells what a process lacks for a moment (memory, threads, file descriptors) from other failures."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Final

from jan_serve.errors import InsufficientMemory, Unavailable

NO_MEMORY: Final = "The server has no memory for this now."

_OF_IMPORTS: Final = re.compile(
    r"failed to map segment|cannot allocate memory|cannot create shared object", re.I
)
"""Messages of glibc's loader of shared libraries."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that led to it, says that there is no memory for objects, a library or a thread."""
    return _cause(error, _is_of_memory) is not None


def shortage(error: BaseException) -> Unavailable | None:
    """The error for a request that met a lack of memory, threads or file descriptors. None for another failure."""
    if ran_out_of_memory(error):
        return InsufficientMemory(NO_MEMORY)
    cause = _cause(error, _is_of_descriptors)
    if isinstance(cause, OSError):
        return Unavailable(f"The server cannot open more files now ({cause.strerror}).")
    return None


def _cause(error: BaseException, is_meant: Callable[[BaseException], bool]) -> BaseException | None:
    cause: BaseException | None = error
    while cause is not None and not is_meant(cause):
        cause = cause.__cause__ or cause.__context__
    return cause


def _is_of_descriptors(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _is_of_memory(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno == errno.ENOMEM
        case ImportError():
            return _OF_IMPORTS.search(str(error)) is not None
        case RuntimeError():
            return str(error) == "can't start new thread"
        case _:
            return False
