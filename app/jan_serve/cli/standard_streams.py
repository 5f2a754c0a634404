"""Prepares the standard streams: all three exist, and failed writes to standard error are ignored."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator
from typing import Final, TextIO

_CLOSED: Final = ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY))
"""Flags to open a missing descriptor with; otherwise the next file that is opened would take its number. A write to
standard output fails with EBADF, as on a closed descriptor."""


class _Stdout(io.TextIOWrapper):
    """Errors carry "standard output" as their file name."""

    def write(self, text: str, /) -> int:
        with _name_in_errors():
            return super().write(text)

    def flush(self) -> None:
        with _name_in_errors():
            super().flush()


class _Stderr(io.TextIOWrapper):
    """Ignores failed writes: there is no other place to report them."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _name_in_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def prepare_streams() -> None:
    """Call once, before any file is opened. For Windows without a console, see `commands.service_run`."""
    if os.name != "posix":
        return
    for number, flags in _CLOSED:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # takes the lowest free number
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _reopened(_Stdout, 1, sys.stdout)
    sys.stderr = _reopened(_Stderr, 2, sys.stderr)


def _reopened(kind: type[io.TextIOWrapper], number: int, old: TextIO | None) -> io.TextIOWrapper:
    raw = open(number, "wb", closefd=False)  # noqa: SIM115
    return kind(
        raw,
        encoding=old.encoding if old is not None else "utf-8",
        errors="backslashreplace",  # prints the code of a character that the encoding lacks
        line_buffering=number == 2 or raw.isatty(),
    )


def discard_output() -> None:
    """Discard buffered and future output: otherwise the interpreter would retry the write at exit and report it."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
