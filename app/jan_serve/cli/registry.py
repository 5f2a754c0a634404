"""Table of commands. A command is imported when it is called: it does not pay for the imports of the others."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import typer


class Command(NamedTuple):
    """place: `module:attribute` in `cli.commands`, a function or a typer.Typer. summary: the start of its help."""

    place: str
    summary: str


COMMANDS: Final = {
    "serve": Command(
        "serve:serve_command",
        "Serve models over HTTP. Ctrl-C or SIGTERM lets running requests finish; the second one stops at once.",
    ),
    "proxy": Command(
        "proxy:proxy", "One address for many servers: a request goes to the one that would answer first."
    ),
    "nodes": Command(
        "nodes:nodes",
        "List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests.",
    ),
    "cluster": Command(
        "cluster:cluster_app", "Servers of one proxy that Ray places, restarts and scales (Linux)."
    ),
    "rpc-server": Command(
        "rpc_server:rpc_server",
        "Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them.",
    ),
    "pull": Command(
        "models.pull:pull",
        "Download a model. Without a quantisation, choose the best one that fits this machine.",
    ),
    "import": Command(
        "models.import_:import_",
        "Link models of other programs into the models folder. Without NAME or --all, list them.",
    ),
    "ls": Command("models.ls:ls", "List the local models with the names that requests use."),
    "show": Command("models.show:show", "Show the files, source, digests, names and header of a model."),
    "rm": Command(
        "models.rm:rm", "Delete models. Asks before deleting files that were not pulled or imported."
    ),
    "run": Command(
        "run:run",
        "Answer a prompt, or chat if there is none. Starts a server if none runs, and stops it at the end.",
    ),
    "ps": Command(
        "models.ps:ps",
        "List the loaded models of the running server. The exit status is 3 if no server runs.",
    ),
    "load": Command("models.load:load", "Load models on the running server. Ctrl-C stops the current load."),
    "stop": Command(
        "models.stop:stop",
        "Unload models; the server keeps running. The next request for a model loads it again.",
    ),
    "logs": Command("logs:logs", "Show the log of the running server. It never contains prompts or answers."),
    "embed": Command(
        "embed:embed",
        "Print the embeddings of texts, in a pipe one vector per line. Starts a server if none runs.",
    ),
    "rerank": Command(
        "rerank:rerank",
        "Sort documents by how well they answer a query, the best one first. Starts a server if none runs.",
    ),
    "decide": Command(
        "decide:decide", "Choose among options, with the probability of each. Starts a server if none runs."
    ),
    "tokenize": Command(
        "tokenize:tokenize",
        "Show the tokens of a text, including special tokens that the model adds. Starts a server if none runs.",
    ),
    "doctor": Command(
        "doctor:doctor",
        "Check llama.cpp, devices, memory and folders. The exit status is 1 if the server cannot work.",
    ),
    "selfcheck": Command(
        "selfcheck:selfcheck",
        "Compare answers, speed and devices with the last version here. The exit status is 1 if any is worse.",
    ),
    "grammar": Command(
        "grammar:grammar",
        "Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it.",
    ),
    "config": Command("config:config_app", "Show the settings and the sources of their values."),
    "completion": Command(
        "completion:completion",
        "Print the script that completes commands, flags and model names with the Tab key.",
    ),
    "connect": Command(
        "connect:connect",
        "Show the settings with which a program uses this server. Without PROGRAM, list the programs.",
    ),
    "launch": Command(
        "launch:launch",
        "Start a program that uses this server. Starts a server if none runs, and stops it at the end.",
    ),
    "service": Command("service:service_app", "Run jan-serve in the background."),
    "own-server": Command(
        "own_server:own_server",
        "Serve on a free local port until the end of standard input. The first line of output is the address.",
    ),
    "cluster-replica": Command(
        "cluster_replica:cluster_replica",
        "Serve with the settings in the first line of standard input, until its end. Prints the address.",
    ),
}
"""By name, in the order of the help."""
_HIDDEN: Final = frozenset({"own-server", "cluster-replica"})


def add_command(app: typer.Typer, name: str) -> None:
    module, _, attribute = COMMANDS[name].place.partition(":")
    command = getattr(import_module(f"jan_serve.cli.commands.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name, hidden=name in _HIDDEN)(command)


def add_summary(app: typer.Typer, name: str) -> None:
    """Only its line in the list of commands: nothing is imported, and `command_for` never runs it."""

    def command() -> None:
        raise AssertionError(f"{name} is only listed")

    app.command(name, hidden=name in _HIDDEN, help=COMMANDS[name].summary)(command)
