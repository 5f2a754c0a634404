"""Which commands there are. Each is imported when it is called: one command does not pay for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

Adder = Callable[[typer.Typer], object]


def _serve(app: typer.Typer) -> None:
    from jan_serve.cli.commands.serve import serve_command

    app.command("serve")(serve_command())


def _pull(app: typer.Typer) -> None:
    from jan_serve.cli.commands.pull import pull

    app.command("pull")(pull)


def _import(app: typer.Typer) -> None:
    from jan_serve.cli.commands.import_ import import_

    app.command("import")(import_)


def _ls(app: typer.Typer) -> None:
    from jan_serve.cli.commands.ls import ls

    app.command("ls")(ls)


def _show(app: typer.Typer) -> None:
    from jan_serve.cli.commands.show import show

    app.command("show")(show)


def _rm(app: typer.Typer) -> None:
    from jan_serve.cli.commands.rm import rm

    app.command("rm")(rm)


def _run(app: typer.Typer) -> None:
    from jan_serve.cli.commands.run import run

    app.command("run")(run)


def _ps(app: typer.Typer) -> None:
    from jan_serve.cli.commands.ps import ps

    app.command("ps")(ps)


def _load(app: typer.Typer) -> None:
    from jan_serve.cli.commands.load import load

    app.command("load")(load)


def _stop(app: typer.Typer) -> None:
    from jan_serve.cli.commands.stop import stop

    app.command("stop")(stop)


def _logs(app: typer.Typer) -> None:
    from jan_serve.cli.commands.logs import logs

    app.command("logs")(logs)


def _embed(app: typer.Typer) -> None:
    from jan_serve.cli.commands.embed import embed

    app.command("embed")(embed)


def _tokenize(app: typer.Typer) -> None:
    from jan_serve.cli.commands.tokenize import tokenize

    app.command("tokenize")(tokenize)


def _doctor(app: typer.Typer) -> None:
    from jan_serve.cli.commands.doctor import doctor

    app.command("doctor")(doctor)


def _grammar(app: typer.Typer) -> None:
    from jan_serve.cli.commands.grammar import grammar

    app.command("grammar")(grammar)


def _watermark(app: typer.Typer) -> None:
    from jan_serve.cli.commands.watermark import watermark

    app.command("watermark")(watermark)


def _config(app: typer.Typer) -> None:
    from jan_serve.cli.commands.config import config_app

    app.add_typer(config_app, name="config")


def _completion(app: typer.Typer) -> None:
    from jan_serve.cli.commands.completion import completion

    app.command("completion")(completion)


def _connect(app: typer.Typer) -> None:
    from jan_serve.cli.commands.connect import connect

    app.command("connect")(connect)


def _service(app: typer.Typer) -> None:
    from jan_serve.cli.commands.service import service_commands

    app.add_typer(service_commands(), name="service")


def _own_server(app: typer.Typer) -> None:
    from jan_serve.cli.client.own_server import own_server

    app.command("own-server", hidden=True)(own_server)


COMMANDS: Final[dict[str, Adder]] = {
    "serve": _serve,
    "pull": _pull,
    "import": _import,
    "ls": _ls,
    "show": _show,
    "rm": _rm,
    "run": _run,
    "ps": _ps,
    "load": _load,
    "stop": _stop,
    "logs": _logs,
    "embed": _embed,
    "tokenize": _tokenize,
    "doctor": _doctor,
    "grammar": _grammar,
    "watermark": _watermark,
    "config": _config,
    "completion": _completion,
    "connect": _connect,
    "service": _service,
    "own-server": _own_server,
}
"""By name, in the order of the help; each adds itself."""
