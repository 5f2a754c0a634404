"""Standard input as text."""

from __future__ import annotations

import sys

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.output import Output


def read_input(output: Output) -> str:
    """Everything on standard input. Blocks until its end, and says so where a person would have to type it."""
    if sys.stdin.isatty():
        output.note("Reading standard input; Ctrl-D ends it.")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(
            f"standard input is not UTF-8 text (byte {error.start})",
            "`iconv -t utf-8` converts it.",
            WRONG_USE,
        ) from None
