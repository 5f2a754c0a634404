"""Reads text from standard input and from files named on the command line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import typer

from jan_serve.cli.errors import WrongUse
from jan_serve.cli.output import output
from jan_serve.store.files import TooLarge, read_limited

_SILENCE_S: Final = 3.0
_MAX_FILE_BYTES: Final = 16 << 20
"""A device, such as /dev/zero, may have no end."""


def silent_keys() -> AbstractContextManager[None]:
    """The terminal does not show what is typed, so that it does not mix into a text; it is read afterwards."""
    return _keys(shown=False)


def question_keys() -> AbstractContextManager[None]:
    """The terminal shows what is typed, within `silent_keys`; what was typed before is dropped: it answers nothing."""
    return _keys(shown=True)


@contextmanager
def _keys(*, shown: bool) -> Generator[None]:
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    if not sys.stdin.isatty() or _in_background():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    mode = [*before]
    mode[3] = mode[3] | termios.ECHO if shown else mode[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSAFLUSH if shown else termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        if not _in_background():
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _in_background() -> bool:
    """Whether the terminal would stop this process for a change of its mode, as it does a job in the background."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except OSError:  # a terminal that does not control this process
        return False


def read_input() -> str:
    """All of standard input. Blocks until its end; prints a note if the user may not know that the command waits."""
    if sys.stdin.isatty():
        output.note("Reading standard input until Ctrl-D.")
    elif not _readable_soon():
        output.note("Waiting for the end of standard input; `< /dev/null` passes an empty one.")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongUse(
            f"standard input is not UTF-8 text (byte {error.start})", "`iconv -t utf-8` converts it."
        ) from None


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Raises CommandError."""
    try:
        return read_limited(path, max_bytes)
    except TooLarge as error:
        raise WrongUse(f"{path} {error}.") from None
    except (OSError, ValueError) as error:  # ValueError: the name contains a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise WrongUse(f"cannot read {path}: {reason}") from None


def read_file(path: Path, max_bytes: int = _MAX_FILE_BYTES) -> str:
    """The text of a UTF-8 file. Raises CommandError."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongUse(f"{path} is not UTF-8 text (byte {error.start}).") from None


def confirm(question: str, refusal: str) -> None:
    """Raises typer.Abort for no, and CommandError with the refusal if nobody can answer."""
    if not sys.stdin.isatty():
        raise WrongUse(
            f"{refusal}: standard input is not a terminal.", "Use --yes to do it without confirmation."
        )
    typer.confirm(question, abort=True, err=True)


def _readable_soon() -> bool:
    """Whether data or the end arrives within _SILENCE_S. An inherited pipe that nobody writes to stays silent."""
    if os.name != "posix":  # select() takes only sockets
        return True
    try:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _SILENCE_S)
    except (OSError, ValueError):  # a stream without a descriptor, as in tests
        return True
    return bool(ready)
