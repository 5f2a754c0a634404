"""The command line as a whole. Each command is one file (`commands`); `jan-serve` alone is `jan-serve serve`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import typer.main

from jan_serve import __version__
from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import report
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.output import Output
from jan_serve.cli.registry import COMMANDS
from jan_serve.cli.standard_streams import discard_output

_GLOBAL_FLAGS = frozenset({"--version", "--help", "-h"})


def _print_version(wanted: bool) -> None:
    if wanted:
        Output().data(f"jan-serve {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A local LLM server: any GGUF model behind the HTTP APIs that people's tools already speak."""


def build_app(names: Sequence[str] | None = None) -> typer.Typer:
    """All commands, or these. Built anew for every call: tests and the documentation build their own."""
    app = typer.Typer(
        name=PROGRAM,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in COMMANDS if names is None else names:
        COMMANDS[name](app)
    return app


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """`jan-serve` and `jan-serve --port 1` mean `jan-serve serve …`."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _GLOBAL_FLAGS):
        return ["serve", *arguments]
    return list(arguments)


def _needed(words: Sequence[str]) -> Sequence[str] | None:
    """The commands that a command line can mean; None is all: for help, for the Tab key, for what is misspelt."""
    if is_completing():
        return None
    if words[0] in COMMANDS:
        return words[:1]
    return () if words[0] == "--version" else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process by default); the value is the exit status."""
    words = with_default_command(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that does not know a character shows its code
            stream.reconfigure(errors="backslashreplace")
    try:
        with interrupts_end_at_once():
            names = _needed(words)
            if names is None:
                enable_completion()
            command = typer.main.get_command(build_app(names))
        # typer reports wrong flags itself, and ends every command with SystemExit.
        command.main(words, prog_name=PROGRAM)
    except BaseException as error:  # the boundary: everything becomes a message and a status
        return report(_with_output(error), Output())
    return 0


def _with_output(error: BaseException) -> BaseException:
    """How the command ended once its output is out: a result that could not be written is a failure."""
    try:
        sys.stdout.flush()
    except OSError as failure:
        discard_output()
        if isinstance(error, SystemExit) and not error.code:
            return failure
    return error
