"""A process without free file descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Generator


@contextlib.contextmanager
def no_descriptors() -> Generator[None]:
    """This process can open nothing while the block runs. POSIX only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, hard))
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
