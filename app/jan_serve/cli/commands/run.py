"""`jan-serve run`: an answer to a prompt, or a chat in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from jan_serve.cli.chat.answer import Answer, ask
from jan_serve.cli.chat.answer_format import read_format
from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.parameters import assignments
from jan_serve.cli.chat.session import chat
from jan_serve.cli.chat.show_answer import AnswerDisplay
from jan_serve.cli.chat.slash_commands import Desk, model_names
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.commands.completion import complete_model
from jan_serve.cli.errors import INTERRUPTED, WRONG_USE, CommandError
from jan_serve.cli.input import read_input
from jan_serve.cli.options import ConfigOption, JsonOption, KeepAliveOption, UrlOption
from jan_serve.cli.output import Output, on_terminal
from jan_serve.config import LoadedSettings, load_settings


def run(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model, as requests name it, or a GGUF file; else the default.",
            autocompletion=complete_model,
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="What to ask. Piped text follows it.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="The system message.")
    ] = None,
    answer_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FILE|json", help="Hold the answer to a JSON Schema, GBNF or any JSON."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter, such as temperature=0.2; repeatable."),
    ] = None,
    keep_alive: KeepAliveOption = None,
    statistics: Annotated[bool, typer.Option("--stats", help="Tokens and rates after the answer.")] = False,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Remember what is typed, for the arrow keys.")
    ] = True,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a model, or chat with it where there is no prompt. Starts a server if none runs, and stops it after."""
    loaded = load_settings(config_file=config)
    output = Output()
    model = model or None
    conversation = Conversation(
        model="",
        system=system,
        parameters=assignments(parameters or []),
        answer_format=read_format(answer_format) if answer_format is not None else None,
        keep_alive=keep_alive,
    )
    question = _question(prompt or [], output)
    if question is None and as_json:
        raise CommandError("--json needs a prompt, as an argument or piped in.", status=WRONG_USE)
    with any_server(loaded, url, output, model=_file(model) or model) as connection:
        conversation.model, full_name = _ready(connection, model, output)
        if question is None:
            output.note(f"{full_name}: /help lists commands, Ctrl-D leaves.")
            _chat(Desk(connection, conversation, output, statistics), loaded, history=history)
            return
        _ask_once(connection, conversation.request(question), output, as_json=as_json, statistics=statistics)


def _question(words: list[str], output: Output) -> str | None:
    """Arguments, then what is piped in. None where a person is to be asked."""
    given = " ".join(words).strip()
    if sys.stdin.isatty():
        return given or (None if on_terminal() else read_input(output))
    piped = read_input(output).strip("\n")
    question = "\n\n".join(part for part in (given, piped) if part.strip())
    if not question:
        raise CommandError("There is no prompt.", "Give one as an argument, or pipe one in.", WRONG_USE)
    return question


def _file(model: str | None) -> Path | None:
    """A GGUF file that is named by its path; None for every other name. Raises CommandError."""
    if model is None or not model.lower().endswith(".gguf"):
        return None
    path = Path(model).expanduser()
    if path.is_file():
        return path.absolute()
    if path.is_absolute() or model.startswith(("./", "../", "~")):
        raise CommandError(f"There is no file {model}.", "`jan-serve ls` lists models by name.", WRONG_USE)
    return None


def _ready(connection: ServerConnection, model: str | None, output: Output) -> tuple[str, str]:
    """What requests name the model, and its full name; it is in memory then.

    Requests name it as the person did: that may mean an adapter of it too. The default one, or the one file of an own
    server, is asked for by no name.
    """
    if model is None or _file(model) is not None:
        name = str(connection.get("/props", patient=True)["model_alias"])
        return name, name
    try:
        return model, load_model(connection, model, output)
    except CommandError as error:
        if " " in model:  # names rarely have blanks: a prompt in the place of the name
            hint = "The prompt comes after the name of a model: `jan-serve run MODEL PROMPT`."
            raise CommandError(error.message, hint, error.status) from None
        raise


def _ask_once(
    connection: ServerConnection, request: dict[str, Any], output: Output, *, as_json: bool, statistics: bool
) -> None:
    display = AnswerDisplay(output, silent=as_json)
    try:
        answer = ask(connection, request, display)
    finally:
        display.end()
    if as_json:
        output.json(_as_json(answer))
    elif answer.finish_reason == "length":
        output.note("The answer was cut: max_tokens or the context is used up.")
    if statistics:
        output.note(answer.statistics())
    if answer.stopped:
        raise typer.Exit(INTERRUPTED)


def _as_json(answer: Answer) -> dict[str, Any]:
    return {
        "model": answer.model,
        "text": answer.text,
        "reasoning": answer.thought or None,
        "finish_reason": "interrupted" if answer.stopped else answer.finish_reason,
        "usage": answer.usage,
        "timings": answer.timings,
    }


def _chat(desk: Desk, loaded: LoadedSettings, *, history: bool) -> None:
    from jan_serve.cli.chat.prompt import LineEditor  # the line editor takes a while, and only chats need it

    file = loaded.settings.data_dir / "chat-history" if history else None
    chat(desk, LineEditor(file, lambda: model_names(desk.connection)))
