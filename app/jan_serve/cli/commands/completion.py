"""`jan-serve completion`: prints or installs the completion script of a shell, and completes names."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Final

import typer
import typer.completion

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.output import Output
from jan_serve.errors import JanServeError

PROGRAM: Final = "jan-serve"
_VARIABLE: Final = "_JAN_SERVE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell")
_INSTALLABLE: Final = ("bash", "zsh", "fish")
_SHELL_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]*")


def completion(
    shell: Annotated[str, typer.Argument(metavar="|".join(_SHELLS), help="Shell to write the script for.")],
    install: Annotated[
        bool,
        typer.Option("--install", help="Save the script and load it from the start file of the shell."),
    ] = False,
) -> None:
    """Print the script that completes commands, flags and model names with the Tab key."""
    if shell not in _SHELLS:
        raise CommandError(
            f"There is no completion for {shell!r}.", f"Shells: {', '.join(_SHELLS)}.", WRONG_USE
        )
    if not install:
        script = typer.completion.get_completion_script(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
            prog_name=PROGRAM, complete_var=_VARIABLE, shell=shell
        )
        Output().raw(script)
        return
    if shell not in _INSTALLABLE:
        hint = "Add the output of this command to the file named by $PROFILE."
        raise CommandError(f"--install supports {', '.join(_INSTALLABLE)}.", hint, WRONG_USE)
    _, path = typer.completion.install(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
        shell=shell, prog_name=PROGRAM, complete_var=_VARIABLE
    )
    Output().note(f"Wrote {path}. New shells load it.")


def is_completing() -> bool:
    """Whether a shell asks for completions."""
    return _VARIABLE in os.environ


def enable_completion() -> None:
    """Typer does this itself only together with its own flags."""
    typer.completion.get_completion_inspect_parameters()


def complete_model(incomplete: str) -> list[str]:
    """Names of local models; none after an error, which completion cannot show."""
    from jan_serve.cli.options import load_settings  # slow, and many commands import this module
    from jan_serve.wiring.parts import build_resolver

    try:
        names = [entry.name for entry in build_resolver(load_settings().settings).entries()]
    except (JanServeError, OSError):
        return []
    # Shells evaluate completions: a file name must not become a command.
    return [name for name in names if name.startswith(incomplete) and _SHELL_SAFE.fullmatch(name)]


def model_argument(text: str, metavar: str = "MODEL") -> Any:
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete_model)


def complete_catalogue(incomplete: str) -> list[str]:
    from jan_serve.resources import catalogue_file
    from jan_serve.store.hub.references import Catalogue

    names = [entry.name for entry in Catalogue.read(catalogue_file()).entries()]
    return [name for name in names if name.startswith(incomplete)]
