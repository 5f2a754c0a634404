"""Entry of the command line. Each command is one file in `commands`; `jan-serve` alone means `jan-serve serve`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import typer.main

from jan_serve import __version__
from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import WRONG_USE, CommandError, report
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.output import Output
from jan_serve.cli.registry import COMMANDS, add_command
from jan_serve.cli.standard_streams import discard_output

_GLOBAL_FLAGS = frozenset({"--version", "--help", "-h"})


def _print_version(requested: bool) -> None:
    if requested:
        Output().data(f"jan-serve {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A local LLM server for GGUF models, with the HTTP APIs that common tools already use."""


def build_app(names: Sequence[str] | None = None) -> typer.Typer:
    """An app with all commands, or with these."""
    app = typer.Typer(
        name=PROGRAM,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in COMMANDS if names is None else names:
        add_command(app, name)
    return app


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """Prepend `serve` where the arguments begin with no command: `jan-serve --port 1` is `jan-serve serve --port 1`.

    Raises CommandError if they begin with an option of another command, and its name follows.
    """
    if not arguments:
        return ["serve"]
    flag = arguments[0]
    if not flag.startswith("-") or flag in _GLOBAL_FLAGS:
        return list(arguments)
    command = next((word for word in arguments[1:] if word in COMMANDS), None)
    if command not in (None, "serve") and flag.partition("=")[0] not in _serve_flags():
        raise CommandError(
            f"{flag} comes before the command.",
            f"Options follow it: {PROGRAM} {command} {flag} …; without a command, they are those of serve.",
            WRONG_USE,
        )
    return ["serve", *arguments]


def _serve_flags() -> set[str]:
    from jan_serve.config import setting_options  # slow, and needed for this mistake only

    return {"--config", *(flag for option in setting_options() for flag in option.flag.split("/"))}


def _commands_to_import(words: Sequence[str]) -> Sequence[str] | None:
    """None means all: for help, completion, and suggestions for a misspelt name."""
    if is_completing():
        return None
    if words[0] in COMMANDS:
        return words[:1]
    return () if words[0] == "--version" else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process. Returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print the code of a character that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        with interrupts_end_at_once():
            words = with_default_command(sys.argv[1:] if arguments is None else arguments)
            names = _commands_to_import(words)
            if names is None:
                enable_completion()
            command = typer.main.get_command(build_app(names))
        # typer reports wrong flags itself and ends every command with SystemExit.
        command.main(words, prog_name=PROGRAM)
    except BaseException as error:  # every exception becomes a message and a status
        return report(_after_flush(error), Output())
    return 0


def _after_flush(error: BaseException) -> BaseException:
    """Flush the output. If that fails, a successful command becomes a failed one."""
    try:
        sys.stdout.flush()
    except OSError as failure:
        discard_output()
        if isinstance(error, SystemExit) and not error.code:
            return failure
    return error
