"""`jan-serve completion`: the script that has a shell complete commands, flags and names; and the names."""

from __future__ import annotations

import os
import re
from typing import Annotated, Final

import typer
import typer.completion

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.output import Output
from jan_serve.errors import JanServeError

PROGRAM: Final = "jan-serve"
_VARIABLE: Final = "_JAN_SERVE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell")
_INSTALLABLE: Final = ("bash", "zsh", "fish")
_HARMLESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]*")


def completion(
    shell: Annotated[str, typer.Argument(metavar="|".join(_SHELLS), help="The shell to write for.")],
    install: Annotated[
        bool,
        typer.Option("--install", help="Put the script where the shell reads it, and change its start file."),
    ] = False,
) -> None:
    """Print the script that completes commands, flags and names of models with the Tab key."""
    if shell not in _SHELLS:
        raise CommandError(
            f"There is no completion for {shell!r}.", f"There is {', '.join(_SHELLS)}.", WRONG_USE
        )
    if not install:
        script = typer.completion.get_completion_script(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
            prog_name=PROGRAM, complete_var=_VARIABLE, shell=shell
        )
        Output().raw(script)
        return
    if shell not in _INSTALLABLE:
        hint = "Add the output of this command to the file that $PROFILE names."
        raise CommandError(f"--install is for {', '.join(_INSTALLABLE)}.", hint, WRONG_USE)
    _, path = typer.completion.install(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
        shell=shell, prog_name=PROGRAM, complete_var=_VARIABLE
    )
    Output().note(f"Written to {path}. New shells have it.")


def is_completing() -> bool:
    """Whether a shell asks what can be completed, rather than a person for a command."""
    return _VARIABLE in os.environ


def enable_completion() -> None:
    """Have the program answer the scripts. Typer does this itself only together with flags of its own."""
    typer.completion.get_completion_inspect_parameters()


def complete_model(incomplete: str) -> list[str]:
    """Names of models that are here. Nothing where they cannot be read: a Tab key has no place for an error."""
    from jan_serve.config import load_settings  # the commands whose arguments name this do not all need these
    from jan_serve.wiring.parts import build_resolver

    try:
        names = [entry.name for entry in build_resolver(load_settings().settings).entries()]
    except (JanServeError, OSError):
        return []
    # Shells evaluate what they are offered: a file's name must not become a command.
    return [name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]


def complete_catalogue(incomplete: str) -> list[str]:
    """Names of the catalogue."""
    from jan_serve.resources import catalogue_file
    from jan_serve.store.hub.catalogue import Catalogue

    names = [entry.name for entry in Catalogue.read(catalogue_file()).entries()]
    return [name for name in names if name.startswith(incomplete)]
