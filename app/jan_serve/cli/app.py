"""The command line as typer sees it, with as few commands as the arguments need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main

from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.registry import COMMANDS, add_command, add_summary

_HELP_FLAGS = frozenset({"--help", "-h"})
_GLOBAL_FLAGS = _HELP_FLAGS | {"--version"}


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
    from jan_serve.cli.settings import setting_options  # slow, and needed for this mistake only

    return {"--config", *(flag for option in setting_options() for flag in option.flag.split("/"))}


def command_for(words: Sequence[str]) -> Any:
    """The `main` of the result runs a command line. Imports only the command that it names."""
    if is_completing():
        enable_completion()
        return typer.main.get_command(build_app())
    if words[0] in COMMANDS:
        return typer.main.get_command(build_app(words[:1]))
    return typer.main.get_command(build_app(summaries=True))
