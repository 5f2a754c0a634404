"""The command line as typer sees it, with as few commands as the arguments need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main

from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.registry import COMMANDS, add_command, add_summary


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """A local LLM server for GGUF models, with the HTTP APIs that common tools already use."""


def build_app(names: Sequence[str] | None = None, *, summaries: bool = False) -> typer.Typer:
    """An app with all commands, or with these. summaries: only for the list of commands and suggestions."""
    app = typer.Typer(
        name=PROGRAM,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in COMMANDS if names is None else names:
        (add_summary if summaries else add_command)(app, name)
    return app


def command_for(words: Sequence[str]) -> Any:
    """The `main` of the result runs a command line. Imports only the command that it names."""
    if is_completing():
        enable_completion()
        return typer.main.get_command(build_app())
    if words[0] in COMMANDS:
        return typer.main.get_command(build_app(words[:1]))
    return typer.main.get_command(build_app(summaries=True))
