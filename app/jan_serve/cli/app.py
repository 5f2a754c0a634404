"""The command line as typer sees it, with as few commands as the arguments need.
A command is imported when it is called: it does not pay for the imports of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from jan_serve.cli.commands.completion import PROGRAM, enable_completion, is_completing
from jan_serve.cli.errors import WrongUse

COMMANDS: Final = {
    "pull": "Download a model. Without a quantisation, choose the best one that fits this machine.",
    "ls": "List the local models with the names that requests use.",
    "show": "Show the files, source, digests, names and header of a model.",
    "use": "Make a model the default: of requests and commands that name none. Without NAME, show the default.",
    "rm": "Delete models. Asks before deleting files that were not pulled or imported.",
    "import": "Link models of other programs into the models folder. Without NAME or --all, list them.",
    "load": "Load models on the running server. Ctrl-C stops the current load.",
    "ps": "List the loaded models of the running server. The exit status is 3 if no server runs.",
    "stop": "Unload models; the server keeps running. The next request for a model loads it again.",
    "run": "Answer a prompt, or chat if there is none. Starts a server if none runs, and stops it at the end.",
    "chats": "List, show, search, export, import or delete the chats of the server. Starts a server if none runs.",
    "embed": "Print the embeddings of texts, in a pipe one vector per line. Starts a server if none runs.",
    "rerank": "Sort documents by how well they answer a query, the best one first. Starts a server if none runs.",
    "decide": "Choose among options, with the probability of each. Starts a server if none runs.",
    "batch": "Answer a file of requests while nobody else needs the model. Starts a server if none runs.",
    "tokenize": (
        "Show the tokens of a text, including special tokens that the model adds. Starts"
        " a server if none runs."
    ),
    "grammar": "Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it.",
    "serve": "Serve models over HTTP, as `jan-serve` without a command does. Ctrl-C lets running requests finish.",
    "service": "Run jan-serve in the background.",
    "logs": "Show the log of the running server. It never contains prompts or answers.",
    "bench": "Measure how fast a model reads and writes here. Starts a server if none runs.",
    "certify": "Try what agents ask of a model: schemas, tools, turns, long prompts. Starts a server if none runs.",
    "top": "Watch the requests of the running server: state, tokens, cache and rate. Ctrl-C ends it.",
    "why": "Say where the time of a request went, and what can be done. Without ID, of the last one.",
    "explain": "Say what the code of an error means, and what can be done. Without CODE, list the codes of errors.",
    "config": "Show the settings and the sources of their values.",
    "doctor": "Check llama.cpp, devices, memory and folders. The exit status is 1 if the server cannot work.",
    "selfcheck": "Compare answers, speed and devices with the last version here. The exit status is 1 if any is worse.",
    "connect": "Show the settings with which a program uses this server. Without PROGRAM, list the programs.",
    "launch": "Start a program that uses this server. Starts a server if none runs, and stops it at the end.",
    "completion": "Print the script that completes commands, flags and model names with the Tab key.",
    "proxy": "One address for many servers: a request goes to the one that would answer first.",
    "nodes": "List the nodes of a proxy: state, models, load, cache hits, and why one gets no requests.",
    "cluster": "Servers of one proxy that Ray places, restarts and scales (Linux).",
    "rpc-server": "Lend the devices of this machine to another one, where `serve --rpc HOST:PORT` uses them.",
    "own-server": (
        "Serve on a free local port until the end of standard input. The first line of output is the address."
    ),
    "cluster-replica": (
        "Serve with the settings in the first line of standard input, until its end. Prints the address."
    ),
}
"""The start of the help of each command, in the order of the list."""

_PANELS: Final = {
    "Models": "pull ls show use rm import load ps stop bench certify",
    "Ask a model": "run chats embed rerank decide batch tokenize grammar",
    "Server": "serve service logs top why explain config doctor selfcheck",
    "Other programs": "connect launch completion",
    "Many machines": "proxy nodes cluster rpc-server",
}
"""Where the list of commands has them; the others are hidden."""

_MODULES: Final = {
    "models.pull": "pull",
    "models.local": "ls show use rm",
    "models.import_": "import",
    "models.loaded": "load ps stop",
    "texts": "embed rerank tokenize",
    "servers.serve": "serve",
    "servers.service": "service",
    "requests": "top why explain",
    "doctor": "selfcheck",
    "connect": "launch",
    "servers.proxy": "proxy nodes",
    "servers.cluster": "cluster",
    "servers.rpc_server": "rpc-server",
    "servers.started": "own-server cluster-replica",
}
"""Those of `cli.commands` with commands of other names than theirs."""

_ATTRIBUTES: Final = {
    "import": "import_",
    "serve": "serve_command",
    "service": "service_app",
    "config": "config_app",
    "cluster": "cluster_app",
}

HABITS: Final = {
    "list": "ls", "models": "ls", "status": "ps", "info": "show", "get": "pull", "download": "pull",
    "search": "pull --list", "remove": "rm", "delete": "rm", "unload": "stop", "chat": "run", "start": "serve",
}  # fmt: skip
"""What other programs call a command."""


def _named(table: Mapping[str, str], name: str) -> str | None:
    return next((key for key, names in table.items() if name in names.split()), None)


def add_command(app: typer.Typer, name: str) -> None:
    module = import_module(f"jan_serve.cli.commands.{_named(_MODULES, name) or name}")
    command = getattr(module, _ATTRIBUTES.get(name) or name.replace("-", "_"))
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name, hidden=_named(_PANELS, name) is None)(command)


def add_summary(app: typer.Typer, name: str) -> None:
    """Only its line in the list of commands: nothing is imported, and `command_for` never runs it."""

    def command() -> None:
        raise AssertionError(f"{name} is only listed")

    panel = _named(_PANELS, name)
    app.command(name, hidden=panel is None, help=COMMANDS[name], rich_help_panel=panel)(command)


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
