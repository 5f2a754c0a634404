"""Entry of the command line. Each command is one file in `commands`; `jan-serve` alone means `jan-serve serve`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from jan_serve import __version__
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.standard_streams import discard_output
from jan_serve.quick_imports import quick_imports


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process. Returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print the code of a character that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if arguments[:1] == ["--version"]:
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
    from jan_serve.cli.output import Output

    return report(error, Output())


def _after_flush(error: BaseException) -> BaseException:
    """Flush the output. If that fails, a successful command becomes a failed one."""
    try:
        sys.stdout.flush()
    except OSError as failure:
        discard_output()
        if isinstance(error, SystemExit) and not error.code:
            return failure
    return error
