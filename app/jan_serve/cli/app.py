"""The command line as typer sees it, with as few commands as the arguments need.
A command is imported when it is called: it does not pay for the imports of the others."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.core
import typer.main

from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import WrongUse


class Entry(NamedTuple):
    """target: `module:attribute` in `cli.commands`, a function or a typer.Typer. summary: the start of its help.

    panel: where the list of commands has it; None hides it.
    """

    target: str
    summary: str
    panel: str | None = None


COMMANDS: Final = {
    "pull": Entry(
        "models.pull:pull",
        "Download a model. Without a quantisation, choose the best one that fits this machine.",
        "Models",
    ),
    "ls": Entry("models.local:ls", "List the local models with the names that requests use.", "Models"),
    "show": Entry(
        "models.show:show", "Show the files, source, digests, names and header of a model.", "Models"
    ),
    "use": Entry(
        "models.local:use",
        "Make a model the default: of requests and commands that name none. Without NAME, show the default.",
        "Models",
    ),
    "rm": Entry(
        "models.local:rm",
        "Delete models. Asks before deleting files that were not pulled or imported.",
        "Models",
    ),
    "import": Entry(
        "models.import_:import_",
        "Link models of other programs into the models folder. Without NAME or --all, list them.",
        "Models",
    ),
    "load": Entry(
        "models.loaded:load", "Load models on the running server. Ctrl-C stops the current load.", "Models"
    ),
    "ps": Entry(
        "models.loaded:ps",
        "List the loaded models of the running server. The exit status is 3 if no server runs.",
        "Models",
    ),
    "stop": Entry(
        "models.loaded:stop",
        "Unload models; the server keeps running. The next request for a model loads it again.",
        "Models",
    ),
    "run": Entry(
        "run:run",
        "Answer a prompt, or chat if there is none. Starts a server if none runs, and stops it at the end.",
        "Ask a model",
    ),
    "chats": Entry(
        "chats:chats",
        "List, show, search, export, import or delete the chats of the server. Starts a server if none runs.",
        "Ask a model",
    ),
    "embed": Entry(
        "texts:embed",
        "Print the embeddings of texts, in a pipe one vector per line. Starts a server if none runs.",
        "Ask a model",
    ),
    "rerank": Entry(
        "texts:rerank",
        "Sort documents by how well they answer a query, the best one first. Starts a server if none runs.",
        "Ask a model",
    ),
    "decide": Entry(
        "decide:decide",
        "Choose among options, with the probability of each. Starts a server if none runs.",
        "Ask a model",
    ),
    "batch": Entry(
        "batch:batch",
        "Answer a file of requests while nobody else needs the model. Starts a server if none runs.",
        "Ask a model",
    ),
    "tokenize": Entry(
        "texts:tokenize",
        "Show the tokens of a text, including special tokens that the model adds. Starts a server if none runs.",
        "Ask a model",
    ),
    "grammar": Entry(
        "grammar:grammar",
        "Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it.",
        "Ask a model",
    ),
    "serve": Entry(
        "servers.serve:serve_command",
        "Serve models over HTTP, as `jan-serve` without a command does. Ctrl-C lets running requests finish.",
        "Server",
    ),
    "service": Entry("servers.service:service_app", "Run jan-serve in the background.", "Server"),
    "logs": Entry(
        "logs:logs", "Show the log of the running server. It never contains prompts or answers.", "Server"
    ),
    "bench": Entry(
        "bench:bench",
        "Measure how fast a model reads and writes here. Starts a server if none runs.",
        "Models",
    ),
    "certify": Entry(
        "certify:certify",
        "Try what agents ask of a model: schemas, tools, turns, long prompts. Starts a server if none runs.",
        "Models",
    ),
    "top": Entry(
        "requests:top",
        "Watch the requests of the running server: state, tokens, cache and rate. Ctrl-C ends it.",
        "Server",
    ),
    "why": Entry(
        "requests:why",
        "Say where the time of a request went, and what can be done. Without ID, of the last one.",
        "Server",
    ),
    "explain": Entry(
        "requests:explain",
        "Say what the code of an error means, and what can be done. Without CODE, list the codes of errors.",
        "Server",
    ),
    "config": Entry("config:config_app", "Show the settings and the sources of their values.", "Server"),
    "doctor": Entry(
        "doctor:doctor",
        "Check llama.cpp, devices, memory and folders. The exit status is 1 if the server cannot work.",
        "Server",
    ),
    "selfcheck": Entry(
        "selfcheck:selfcheck",
        "Compare answers, speed and devices with the last version here. The exit status is 1 if any is worse.",
        "Server",
    ),
    "connect": Entry(
        "connect:connect",
        "Show the settings with which a program uses this server. Without PROGRAM, list the programs.",
        "Other programs",
    ),
    "launch": Entry(
        "connect:launch",
        "Start a program that uses this server. Starts a server if none runs, and stops it at the end.",
        "Other programs",
    ),
    "completion": Entry(
        "completion:completion",
        "Print the script that completes commands, flags and model names with the Tab key.",
        "Other programs",
    ),
    "proxy": Entry(
        "servers.proxy:proxy",
        "One address for many servers: a request goes to the one that would answer first.",
        "Many machines",
    ),
    "nodes": Entry(
        "servers.nodes:nodes",
        "List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests.",
        "Many machines",
    ),
    "cluster": Entry(
        "servers.cluster:cluster_app",
        "Servers of one proxy that Ray places, restarts and scales (Linux).",
        "Many machines",
    ),
    "rpc-server": Entry(
        "servers.rpc_server:rpc_server",
        "Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them.",
        "Many machines",
    ),
    "own-server": Entry(
        "servers.started:own_server",
        "Serve on a free local port until the end of standard input. The first line of output is the address.",
    ),
    "cluster-replica": Entry(
        "servers.started:cluster_replica",
        "Serve with the settings in the first line of standard input, until its end. Prints the address.",
    ),
}
"""Commands by name, in the order of the help."""

HABITS: Final = {
    "list": "ls", "models": "ls", "status": "ps", "info": "show", "get": "pull", "download": "pull",
    "search": "pull --list", "remove": "rm", "delete": "rm", "unload": "stop", "chat": "run", "start": "serve",
}  # fmt: skip
"""What other programs call a command."""


def add_command(app: typer.Typer, name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(import_module(f"jan_serve.cli.commands.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name, hidden=COMMANDS[name].panel is None)(command)


def add_summary(app: typer.Typer, name: str) -> None:
    """Only its line in the list of commands: nothing is imported, and `command_for` never runs it."""

    def command() -> None:
        raise AssertionError(f"{name} is only listed")

    entry = COMMANDS[name]
    app.command(name, hidden=entry.panel is None, help=entry.summary, rich_help_panel=entry.panel)(command)


_CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}
_GLOBAL_FLAGS: Final = frozenset({"--help", "-h", "--version"})


def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """A local LLM server for GGUF models, with the HTTP APIs that common tools already use."""


class _Commands(typer.core.TyperGroup):
    """Commands that refuse the value of an option in the words of the settings. `invoke` raises CommandError."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from jan_serve.config.fields import brief, sentence

            if not isinstance(error.__cause__, ValidationError) or error.param is None:
                raise
            problem = error.__cause__.errors(include_url=False, include_context=False)[0]
            name = next(iter(error.param.opts), error.param.name)
            reason = f"{name} {sentence(problem['msg'])} (it is {brief(problem['input'])})."
            raise WrongUse(reason, "See --help.") from None


def build_app(names: Sequence[str] | None = None, *, summaries: bool = False) -> typer.Typer:
    """An app with all commands, or with these. summaries: only for the list of commands and suggestions."""
    app = typer.Typer(
        name=PROGRAM,
        cls=_Commands,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings=_CONTEXT,
    )
    app.callback()(_root)
    for name in COMMANDS if names is None else names:
        (add_summary if summaries else add_command)(app, name)
    return app


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """Prepend `serve` where the arguments begin with no command: `jan-serve --port 1` is `jan-serve serve --port 1`.
    A command by the name that another program has for it becomes ours. Raises CommandError if the arguments begin with
    an option of another command, and its name follows."""
    if not arguments:
        return ["serve"]
    flag, *others = arguments
    if flag == "help":
        return [*with_default_command(others), "--help"] if others else ["--help"]
    if flag in HABITS:
        return [*HABITS[flag].split(), *others]
    if not flag.startswith("-") or flag in _GLOBAL_FLAGS:
        return list(arguments)
    if near := get_close_matches(flag, ("--help", "--version"), n=1, cutoff=0.8):
        raise WrongUse(f"No such option: {flag}. Did you mean {near[0]}?")
    command = next((word for word in arguments[1:] if word in COMMANDS), None)
    if command not in (None, "serve") and flag.partition("=")[0] not in _serve_flags():
        raise WrongUse(
            f"{flag} comes before the command.",
            f"Options follow it: {PROGRAM} {command} {flag} …; without a command, they are those of serve.",
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
        return _without_switch_types(typer.main.get_command(build_app(words[:1])))
    return _without_switch_types(typer.main.get_command(build_app(summaries=True)))


def _without_switch_types(command: Any) -> Any:
    """The command and those below it, whose help shows `--json` and not `--json <bool>`, which takes no value."""
    context = typer.Context(command, **_CONTEXT)
    for parameter in (*command.params, command.get_help_option(context)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = parameter.metavar or ""
    for each in getattr(command, "commands", {}).values():
        _without_switch_types(each)
    return command
