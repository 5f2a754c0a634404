"""Table of commands. A command is imported when it is called: it does not pay for the imports of the others."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import typer

COMMANDS: Final = {
    "serve": "serve:serve_command",
    "proxy": "proxy:proxy",
    "nodes": "nodes:nodes",
    "pull": "pull:pull",
    "import": "import_:import_",
    "ls": "ls:ls",
    "show": "show:show",
    "rm": "rm:rm",
    "run": "run:run",
    "ps": "ps:ps",
    "load": "load:load",
    "stop": "stop:stop",
    "logs": "logs:logs",
    "embed": "embed:embed",
    "tokenize": "tokenize:tokenize",
    "doctor": "doctor:doctor",
    "grammar": "grammar:grammar",
    "watermark": "watermark:watermark",
    "config": "config:config_app",
    "completion": "completion:completion",
    "connect": "connect:connect",
    "service": "service:service_app",
    "own-server": "own_server:own_server",
}
"""Name → `module:attribute` in `cli.commands`, a function or a typer.Typer. In the order of the help."""
_HIDDEN: Final = frozenset({"own-server"})


def add_command(app: typer.Typer, name: str) -> None:
    module, _, attribute = COMMANDS[name].partition(":")
    command = getattr(import_module(f"jan_serve.cli.commands.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name, hidden=name in _HIDDEN)(command)
