"""The standard streams as commands rely on them: each exists, and notes that cannot be written are lost."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator
from typing import Final, TextIO

_CLOSED: Final = ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))
"""What a descriptor that was passed closed is opened for. A write to standard output fails with EBADF, as on a closed
one; without this, the next file that is opened would take its number."""


class _Result(io.TextIOWrapper):
    """Standard output: errors name it, as those of files name the file."""

    def write(self, text: str, /) -> int:
        with _named():
            return super().write(text)

    def flush(self) -> None:
        with _named():
            super().flush()


class _Notes(io.TextIOWrapper):
    """Standard error: it is never the result, and there is no other place to report that it cannot be written."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _named() -> Generator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def prepare_streams() -> None:
    """Once a process, before anything is opened. Windows gives programs without a console no streams: see `service`."""
    if os.name != "posix":
        return
    for number, flags in _CLOSED:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # it takes the lowest free number
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _reopened(_Result, 1, sys.stdout)
    sys.stderr = _reopened(_Notes, 2, sys.stderr)


def _reopened(kind: type[io.TextIOWrapper], number: int, old: TextIO | None) -> io.TextIOWrapper:
    """errors: a terminal that does not know a character shows its code."""
    raw = open(number, "wb", closefd=False)  # noqa: SIM115
    return kind(
        raw,
        encoding=old.encoding if old is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=number == 2 or raw.isatty(),
    )


def discard_output() -> None:
    """What standard output has not taken, and what is written there from now on, goes nowhere.

    The interpreter would try it again at its end, and report the failure in words of its own.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
