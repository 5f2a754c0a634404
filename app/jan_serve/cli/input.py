"""Standard input and files that a command line names, as text."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import Final

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.output import Output

_SILENCE_S: Final = 3.0
_MAX_BYTES: Final = 16 << 20
"""Of a file. A device may have no end."""


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


def read_file(path: Path, max_bytes: int = _MAX_BYTES) -> str:
    """A file of UTF-8 text. Raises CommandError."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise CommandError(f"{path} has more than {max_bytes} bytes.", status=WRONG_USE)
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text (byte {error.start}).", status=WRONG_USE) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"cannot read {path}: {reason}", status=WRONG_USE) from None


def _speaks_soon() -> bool:
    """Whether something, its end included, comes within some seconds. A pipe that a program inherited never does."""
    if os.name != "posix":  # select() is for sockets only
        return True
    try:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _SILENCE_S)
    except (OSError, ValueError):  # no file behind it, as in tests
        return True
    return bool(ready)
