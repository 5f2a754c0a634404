"""Tells a lack of memory from other failures, whatever the exception that it comes as."""

from __future__ import annotations

import errno
import re
from typing import Final

_OF_IMPORTS: Final = re.compile(
    r"failed to map segment|cannot allocate memory|cannot create shared object", re.I
)
"""Messages of glibc's loader of shared libraries."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether it, or what it came from, is that the process got no memory, for objects, a library or a thread."""
    cause: BaseException | None = error
    while cause is not None and not _is_shortage(cause):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _is_shortage(error: BaseException) -> bool:
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
