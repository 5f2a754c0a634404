"""The command line: which commands there are. Each command is one file; `jan-serve` alone is `jan-serve serve`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import typer.main

from jan_serve import __version__
from jan_serve.cli.completion import PROGRAM, completion, enable_completion
from jan_serve.cli.config import config_app
from jan_serve.cli.connect import connect
from jan_serve.cli.doctor import doctor
from jan_serve.cli.embed import embed
from jan_serve.cli.errors import report
from jan_serve.cli.grammar import grammar
from jan_serve.cli.import_ import import_
from jan_serve.cli.load import load
from jan_serve.cli.logs import logs
from jan_serve.cli.ls import ls
from jan_serve.cli.output import Output
from jan_serve.cli.own_server import OWN_SERVER_COMMAND, own_server
from jan_serve.cli.ps import ps
from jan_serve.cli.pull import pull
from jan_serve.cli.rm import rm
from jan_serve.cli.run import run
from jan_serve.cli.serve import serve_command
from jan_serve.cli.service import service_commands
from jan_serve.cli.show import show
from jan_serve.cli.stop import stop
from jan_serve.cli.tokenize import tokenize
from jan_serve.cli.watermark import watermark

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


def build_app() -> typer.Typer:
    """All commands. Built anew for every call: tests and the documentation build their own."""
    app = typer.Typer(
        name=PROGRAM,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    app.command("serve")(serve_command())
    app.command("pull")(pull)
    app.command("import")(import_)
    app.command("ls")(ls)
    app.command("show")(show)
    app.command("rm")(rm)
    app.command("run")(run)
    app.command("ps")(ps)
    app.command("load")(load)
    app.command("stop")(stop)
    app.command("logs")(logs)
    app.command("embed")(embed)
    app.command("tokenize")(tokenize)
    app.command("doctor")(doctor)
    app.command("grammar")(grammar)
    app.command("watermark")(watermark)
    app.add_typer(config_app, name="config")
    app.command("completion")(completion)
    app.command("connect")(connect)
    app.add_typer(service_commands(), name="service")
    app.command(OWN_SERVER_COMMAND, hidden=True)(own_server)
    return app


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """`jan-serve` and `jan-serve --port 1` mean `jan-serve serve …`."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _GLOBAL_FLAGS):
        return ["serve", *arguments]
    return list(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process by default); the value is the exit status."""
    words = with_default_command(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that does not know a character shows its code
            stream.reconfigure(errors="backslashreplace")
    try:
        enable_completion()
        # typer reports wrong flags itself, and ends every command with SystemExit.
        typer.main.get_command(build_app()).main(words, prog_name=PROGRAM)
    except BaseException as error:  # the boundary: everything becomes a message and a status
        return report(error, Output())
    return 0
