"""The command line as typer sees it, with as few commands as the arguments need.

A command is imported when it is called: it does not pay for the imports of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.main

from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import WRONG_USE, CommandError


class Entry(NamedTuple):
    """target: `module:attribute` in `cli.commands`, a function or a typer.Typer. summary: the start of its help."""

    target: str
    summary: str


COMMANDS: Final = {
    "serve": Entry(
        "serve:serve_command",
        "Serve models over HTTP. Ctrl-C or SIGTERM lets running requests finish; the second one stops at once.",
    ),
    "proxy": Entry(
        "proxy:proxy", "One address for many servers: a request goes to the one that would answer first."
    ),
    "nodes": Entry(
        "nodes:nodes",
        "List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests.",
    ),
    "cluster": Entry(
        "cluster:cluster_app", "Servers of one proxy that Ray places, restarts and scales (Linux)."
    ),
    "rpc-server": Entry(
        "rpc_server:rpc_server",
        "Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them.",
    ),
    "pull": Entry(
        "models.pull:pull",
        "Download a model. Without a quantisation, choose the best one that fits this machine.",
    ),
    "import": Entry(
        "models.import_:import_",
        "Link models of other programs into the models folder. Without NAME or --all, list them.",
    ),
    "ls": Entry("models.ls:ls", "List the local models with the names that requests use."),
    "show": Entry("models.show:show", "Show the files, source, digests, names and header of a model."),
    "rm": Entry(
        "models.rm:rm", "Delete models. Asks before deleting files that were not pulled or imported."
    ),
    "run": Entry(
        "run:run",
        "Answer a prompt, or chat if there is none. Starts a server if none runs, and stops it at the end.",
    ),
    "ps": Entry(
        "models.ps:ps",
        "List the loaded models of the running server. The exit status is 3 if no server runs.",
    ),
    "load": Entry("models.load:load", "Load models on the running server. Ctrl-C stops the current load."),
    "stop": Entry(
        "models.stop:stop",
        "Unload models; the server keeps running. The next request for a model loads it again.",
    ),
    "logs": Entry("logs:logs", "Show the log of the running server. It never contains prompts or answers."),
    "embed": Entry(
        "embed:embed",
        "Print the embeddings of texts, in a pipe one vector per line. Starts a server if none runs.",
    ),
    "rerank": Entry(
        "rerank:rerank",
        "Sort documents by how well they answer a query, the best one first. Starts a server if none runs.",
    ),
    "decide": Entry(
        "decide:decide", "Choose among options, with the probability of each. Starts a server if none runs."
    ),
    "tokenize": Entry(
        "tokenize:tokenize",
        "Show the tokens of a text, including special tokens that the model adds. Starts a server if none runs.",
    ),
    "doctor": Entry(
        "doctor:doctor",
        "Check llama.cpp, devices, memory and folders. The exit status is 1 if the server cannot work.",
    ),
    "selfcheck": Entry(
        "selfcheck:selfcheck",
        "Compare answers, speed and devices with the last version here. The exit status is 1 if any is worse.",
    ),
    "grammar": Entry(
        "grammar:grammar",
        "Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it.",
    ),
    "config": Entry("config:config_app", "Show the settings and the sources of their values."),
    "completion": Entry(
        "completion:completion",
        "Print the script that completes commands, flags and model names with the Tab key.",
    ),
    "connect": Entry(
        "connect:connect",
        "Show the settings with which a program uses this server. Without PROGRAM, list the programs.",
    ),
    "launch": Entry(
        "launch:launch",
        "Start a program that uses this server. Starts a server if none runs, and stops it at the end.",
    ),
    "service": Entry("service:service_app", "Run jan-serve in the background."),
    "own-server": Entry(
        "own_server:own_server",
        "Serve on a free local port until the end of standard input. The first line of output is the address.",
    ),
    "cluster-replica": Entry(
        "own_server:cluster_replica",
        "Serve with the settings in the first line of standard input, until its end. Prints the address.",
    ),
}
"""By name, in the order of the help."""
_HIDDEN: Final = frozenset({"own-server", "cluster-replica"})


def add_command(app: typer.Typer, name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
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
    from jan_serve.cli.options import setting_options  # slow, and needed for this mistake only

    return {"--config", *(flag for option in setting_options() for flag in option.flag.split("/"))}


def command_for(words: Sequence[str]) -> Any:
    """The `main` of the result runs a command line. Imports only the command that it names."""
    if is_completing():
        enable_completion()
        return typer.main.get_command(build_app())
    if words[0] in COMMANDS:
        return typer.main.get_command(build_app(words[:1]))
    return typer.main.get_command(build_app(summaries=True))
