"""`jan-serve completion`: prints or installs the completion script of a shell, and completes names."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer
import typer.completion

from jan_serve.cli.arguments import argument, option
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.output import output

PROGRAM: Final = "jan-serve"
_VARIABLE: Final = "_JAN_SERVE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell")
_INSTALLABLE: Final = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, argument("|".join(_SHELLS), "Shell to write the script for.")],
    install: Annotated[
        bool, option("--install", "Save the script and load it from the start file of the shell.")
    ] = False,
) -> None:
    """Print the script that completes commands, flags and model names with the Tab key."""
    if shell not in _SHELLS:
        raise WrongUse(f"There is no completion for {shell!r}.", f"Shells: {', '.join(_SHELLS)}.")
    if not install:
        script = typer.completion.get_completion_script(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
            prog_name=PROGRAM, complete_var=_VARIABLE, shell=shell
        )
        output.raw(script)
        return
    if shell not in _INSTALLABLE:
        hint = "Add the output of this command to the file named by $PROFILE."
        raise WrongUse(f"--install supports {', '.join(_INSTALLABLE)}.", hint)
    _, path = typer.completion.install(  # pyright: ignore[reportPrivateImportUsage]: no other way to it
        shell=shell, prog_name=PROGRAM, complete_var=_VARIABLE
    )
    output.note(f"Wrote {path}. New shells load it.")


def is_completing() -> bool:
    """Whether a shell asks for completions."""
    return _VARIABLE in os.environ


def enable_completion() -> None:
    """Typer does this itself only together with its own flags."""
    typer.completion.get_completion_inspect_parameters()
