"""Standard input as text."""

from __future__ import annotations

import os
import select
import sys
from typing import Final

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.output import Output

_SILENCE_S: Final = 3.0


def read_input(output: Output) -> str:
    """Everything on standard input. Blocks until its end, and says so where nobody may know that it is waited for."""
    if sys.stdin.isatty():
        output.note("Reading standard input; Ctrl-D ends it.")
    elif not _speaks_soon():
        output.note("Waiting for the end of standard input; `< /dev/null` goes without it.")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(
            f"standard input is not UTF-8 text (byte {error.start})",
            "`iconv -t utf-8` converts it.",
            WRONG_USE,
        ) from None


def _speaks_soon() -> bool:
    """Whether something, its end included, comes within some seconds. A pipe that a program inherited never does."""
    if os.name != "posix":  # select() is for sockets only
        return True
    try:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _SILENCE_S)
    except (OSError, ValueError):  # no file behind it, as in tests
        return True
    return bool(ready)
