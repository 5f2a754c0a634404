"""`jan-serve run`: answers a prompt, or chats in the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from jan_serve.cli.arguments import (
    ConfigOption,
    JsonOption,
    KeepAliveOption,
    UrlOption,
    argument,
    model_argument,
    option,
)
from jan_serve.cli.chat.chat_tools import ALL, ChatTools, chat_tools
from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.exchange import ChatAnswer, exchange
from jan_serve.cli.chat.kept_chat import kept_chat, show_messages
from jan_serve.cli.chat.request_options import assignments, file_part, read_format
from jan_serve.cli.chat.session import chat
from jan_serve.cli.chat.slash_commands import ChatSession, model_names
from jan_serve.cli.client.loading import note_base_model, pulled_on_request, ready_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import OtherProgram, ServerClient, UnknownModel
from jan_serve.cli.errors import INTERRUPTED, CommandError, WrongUse
from jan_serve.cli.input import read_input, silent_keys
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import on_terminal, output
from jan_serve.store.files import user_path

_AllowToolOption = Annotated[
    list[str] | None,
    option(f"--allow-tool NAME|{ALL}", "Call this tool without asking; repeatable. Implies --mcp."),
]
_FilesOption = Annotated[
    list[Path] | None,
    option("--file --image FILE", "An image, PDF or text to send with the prompt; repeatable."),
]
_GoesOnOption = Annotated[
    bool, option("--continue", "Go on with the last chat of the server, the page's too.")
]
_ChatOption = Annotated[str | None, option("--chat ID", "Go on with this one of `jan-serve chats`.")]


def run(
    model: Annotated[
        str | None, model_argument("Name of a model, or path of a GGUF file; default: the default model.")
    ] = None,
    prompt: Annotated[list[str] | None, argument("PROMPT", "The prompt. Standard input is appended.")] = None,
    files: _FilesOption = None,
    system: Annotated[str | None, option("--system TEXT", "System message.")] = None,
    answer_format: Annotated[
        str | None,
        option("--format FILE|json", "Constrain the answer to a JSON Schema, a grammar or any JSON."),
    ] = None,
    parameters: Annotated[
        list[str] | None, option("--set NAME=VALUE", "Set a parameter, such as temperature=0.2; repeatable.")
    ] = None,
    mcp: Annotated[
        bool, option("--mcp", "Offer the tools of the MCP servers of `mcp_file`; each call is asked for.")
    ] = False,
    allowed_tools: _AllowToolOption = None,
    goes_on: _GoesOnOption = False,
    chat_id: _ChatOption = None,
    keep_alive: KeepAliveOption = None,
    statistics: Annotated[bool, option("--stats", "Print tokens and rates after the answer.")] = False,
    history: Annotated[
        bool,
        option(
            "--history/--no-history", "Keep the chat on the server, and the typed lines for the arrow keys."
        ),
    ] = True,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a prompt, or chat if there is none. Starts a server if none runs, and stops it at the end."""
    loaded = load_settings(config_file=config)
    model = model or None
    conversation = Conversation(
        model="",
        system=system,
        parameters=assignments(parameters or []),
        answer_format=read_format(answer_format) if answer_format is not None else None,
        keep_alive=keep_alive,
        files=[file_part(path) for path in files or ()],
    )
    question = _question(model, prompt or [])
    if question is None and as_json:
        raise WrongUse("--json requires a prompt as an argument or on standard input.")
    with contextlib.ExitStack() as stack:
        stack.enter_context(silent_keys())
        client = stack.enter_context(any_server(loaded, url, model=_file(model) or model))
        tools: ChatTools | None = None
        if mcp or allowed_tools:
            tools = stack.enter_context(chat_tools(loaded.settings.mcp_file, allowed_tools or ()))
        wanted = "" if goes_on and chat_id is None else chat_id
        is_kept = wanted is not None or (question is None and history)
        kept = kept_chat(client, wanted, conversation, output.note) if is_kept else None
        if question is not None:
            _begin(client, conversation, model)
            done = exchange(client, conversation, question, tools, silent=as_json)
            if kept is not None:
                conversation.add(question, done.answer.text, done.steps)
                kept.save(conversation)
            _finish(done.answer, as_json=as_json, statistics=statistics)
            return
        # Slow, and only chats need it. A server that was started for this chat gets ready meanwhile.
        from jan_serve.cli.chat.line_editor import LineEditor

        full_name = _begin(client, conversation, model)
        if kept is not None:
            show_messages(client, kept.line)
        output.note(f"{full_name}: /help lists the commands, Ctrl-D leaves.")
        session = ChatSession(client, conversation, statistics, tools=tools, kept=kept)
        file = loaded.settings.data_dir / "chat-history" if history else None
        chat(session, LineEditor(file, lambda: model_names(client)).read)


def _begin(client: ServerClient, conversation: Conversation, model: str | None) -> str:
    """Load the model of the conversation. Returns its full name."""
    conversation.model, full_name = _ready(client, model)
    note_base_model(client, (conversation.model, full_name))
    return full_name


def _question(model: str | None, words: list[str]) -> str | None:
    """The arguments, then standard input. None for an interactive chat."""
    argument = " ".join(words).strip()
    if sys.stdin.isatty():
        return argument or (None if on_terminal() else read_input())
    piped = read_input().strip("\n")
    question = "\n\n".join(part for part in (argument, piped) if part.strip())
    if not question:
        hint = "Pass one as an argument after the model, or on standard input."
        read_as = f" {model!r} is the name of the model." if model else ""
        raise WrongUse(f"There is no prompt.{read_as}", hint)
    return question


def _file(model: str | None) -> Path | None:
    """The path of a GGUF file; None for any other name. Raises CommandError."""
    if model is None or not model.lower().endswith(".gguf"):
        return None
    path = user_path(model)
    if os.path.isfile(path):
        return path.absolute()
    if path.is_absolute() or model.startswith(("./", "../", "~")):
        raise WrongUse(f"There is no file {model}.", "`jan-serve ls` lists the models.")
    return None


def _ready(client: ServerClient, model: str | None) -> tuple[str, str]:
    """Load the model. Returns its name for requests and its full name.
    Requests use the name as typed, which may select an adapter. The server already has its default model, and a server
    for one file only that."""
    if model is None or _file(model) is not None:
        try:
            name = str(client.get("/props", patient=True)["model_alias"])
        except OtherProgram:
            name = _only_model(client)
        return name, name
    try:
        return model, _loaded(client, model)
    except CommandError as error:
        if " " in model:  # probably a prompt
            hint = "The prompt follows the name of a model: `jan-serve run MODEL PROMPT`."
            raise CommandError(error.message, hint, error.status) from None
        raise


def _loaded(client: ServerClient, model: str) -> str:
    """Load the model, which the user may have downloaded first. Returns its full name."""
    try:
        return ready_model(client, model)
    except UnknownModel:
        if not pulled_on_request(client, model):
            raise
    return ready_model(client, model)


def _only_model(client: ServerClient) -> str:
    """The one model of a proxy, which has no default model."""
    names = model_names(client)
    if len(names) == 1:
        return names[0]
    known = (
        f"Its models: {', '.join(names)}." if names else f"`jan-serve nodes --url {client.url}` shows why."
    )
    raise WrongUse(f"{client.url} is a proxy and has no default model.", known)


def _finish(answer: ChatAnswer, *, as_json: bool, statistics: bool) -> None:
    """What follows an answer. Raises typer.Exit for one that was stopped."""
    if as_json:
        output.json(
            {
                "model": answer.model,
                "text": answer.text,
                "reasoning": answer.reasoning or None,
                "finish_reason": "interrupted" if answer.stopped else answer.finish_reason,
                "usage": answer.usage,
                "timings": answer.timings,
            }
        )
    elif answer.finish_reason == "length":
        output.note("The answer is incomplete: max_tokens or the context is used up.")
    if statistics:
        output.note(answer.statistics())
    if answer.stopped:
        raise typer.Exit(INTERRUPTED)
