"""What commands take: the options that they share, and how each declares its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from jan_serve.errors import JanServeError

_SHELL_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]*")


def option(names: str, text: str, **form: Any) -> Any:
    """names: with their dashes, and what stands for its value: `--lines -n N`. text: its help."""
    words = names.split()
    metavar = next((word for word in words if not word.startswith("-")), None)
    return typer.Option(*(word for word in words if word != metavar), help=text, metavar=metavar, **form)


def argument(metavar: str, text: str, **form: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **form)


def model_argument(text: str, metavar: str = "MODEL") -> Any:
    return argument(metavar, text, autocompletion=complete_model)


def parameter(name: str, annotation: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameters_of(options: type) -> list[Parameter]:
    """The annotated attributes of a class, with their defaults."""
    hints = get_type_hints(options, include_extras=True)
    return [parameter(name, kind, getattr(options, name)) for name, kind in hints.items()]


def taking(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """The command, whose `**values` are these."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


ConfigOption = Annotated[
    Path | None, option("--config FILE", "Configuration file. `jan-serve config` shows the one in use.")
]
ModelsDirOption = Annotated[
    Path | None, option("--models-dir FOLDER", "Models folder; default: the configured one.")
]
UrlOption = Annotated[
    str | None,
    option("--url URL", "Address of the server; default: JAN_SERVE_URL, else the configured host and port."),
]
KeepAliveOption = Annotated[
    str | None,
    option(
        "--keep-alive TIME",
        "Unload the model after this time without requests: 10m, 1h30m or seconds; -1 means never.",
    ),
]
JsonOption = Annotated[bool, option("--json", "Print JSON, for programs.")]


def complete_model(incomplete: str) -> list[str]:
    """Names of local models; none after an error, which completion cannot show."""
    from jan_serve.cli.options import load_settings  # slow, and only completion needs these
    from jan_serve.wiring.parts import build_resolver

    try:
        names = [entry.name for entry in build_resolver(load_settings().settings).entries()]
    except (JanServeError, OSError):
        return []
    # Shells evaluate completions: a file name must not become a command.
    return [name for name in names if name.startswith(incomplete) and _SHELL_SAFE.fullmatch(name)]


def complete_catalogue(incomplete: str) -> list[str]:
    from jan_serve.resources import catalogue_file
    from jan_serve.store.hub.references import Catalogue

    names = [entry.name for entry in Catalogue.read(catalogue_file()).entries()]
    return [name for name in names if name.startswith(incomplete)]
