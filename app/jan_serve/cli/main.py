"""Entry of the command line: prepares the standard streams, runs a command, and turns its failure into a status.
`app.COMMANDS` names the file of each command; `jan-serve` alone means `jan-serve serve`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator, Sequence
from typing import Final, TextIO

from jan_serve import __version__
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.quick_imports import quick_imports

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
    """Call once, before any file is opened. For Windows without a console, see `commands.servers.started`."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process. Returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print the code of a character that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if arguments[:1] in (["--version"], ["version"]):
            sys.stdout.write(f"jan-serve {__version__}\n")
            sys.exit()
        with interrupts_end_at_once(), quick_imports():
            from jan_serve.cli.app import command_for, with_default_command

            words = with_default_command(arguments)
            command = command_for(words)
        # typer reports wrong flags itself and ends every command with SystemExit.
        command.main(words, prog_name="jan-serve")
    except BaseException as error:  # every exception becomes a message and a status
        return _status(_after_flush(error))
    return 0


def _status(error: BaseException) -> int:
    """Report the error; returns the exit status."""
    if isinstance(error, SystemExit) and not error.code:
        return 0
    from jan_serve.cli.errors import report

    return report(error)


def _after_flush(error: BaseException) -> BaseException:
    """Flush the output. If that fails, a successful command becomes a failed one."""
    try:
        sys.stdout.flush()
    except OSError as failure:
        discard_output()
        if isinstance(error, SystemExit) and not error.code:
            return failure
    return error
