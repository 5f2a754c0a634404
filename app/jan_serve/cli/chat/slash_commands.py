"""Commands of an interactive chat, such as `/set`. A failed command changes nothing."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from jan_serve.cli.chat.chat_tools import ChatTools
from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.kept_chat import KeptChat
from jan_serve.cli.chat.request_options import PARAMETERS, file_part, parameter, read_format
from jan_serve.cli.client.loading import note_base_model, ready_model
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.input import read_file
from jan_serve.cli.output import output
from jan_serve.store.files import private_opener, user_path


class LeaveChat(Exception):
    """Ends the chat."""


class ChatSession(msgspec.Struct):
    """State of the chat. ask_again: the question to repeat, set by `/retry`."""

    client: ServerClient
    conversation: Conversation
    show_statistics: bool = False
    ask_again: str | None = None
    last_statistics: str = "no answer yet"
    tools: ChatTools | None = None
    kept: KeptChat | None = None


def run_slash_command(session: ChatSession, line: str) -> None:
    """Run a line that begins with `/`. Raises CommandError, LeaveChat."""
    word, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(word.lower())
    if command is None:
        near = difflib.get_close_matches(word.lower(), list(COMMANDS), n=1)
        otherwise = (
            '/help lists the commands. To send a message that begins with /, put it between """ and """.'
        )
        raise WrongUse(f"There is no command {word}.", f"Did you mean {near[0]}?" if near else otherwise)
    command.handler(session, rest.strip())


def _help(session: ChatSession, rest: str) -> None:
    shown = {command.usage: command.meaning for command in COMMANDS.values()}
    width = max(map(len, shown))
    for usage, meaning in shown.items():
        output.note(f"  {usage:<{width}}  {meaning}")
    output.note()
    output.note('  Several lines: between """ and """, with \\ at their ends, or by Alt-Enter.')
    output.note("  Ctrl-C stops an answer; Ctrl-D leaves.")


def _set(session: ChatSession, rest: str) -> None:
    parameters = session.conversation.parameters
    if not rest:
        width = max(map(len, PARAMETERS))
        for name, meaning in PARAMETERS.items():
            value = f" = {json.dumps(parameters[name], ensure_ascii=False)}" if name in parameters else ""
            output.note(f"  {name:<{width}}  {meaning}{value}")
        return
    name, _, text = rest.replace("=", " ", 1).partition(" ")
    known, value = parameter(name, text)
    parameters[known] = value
    output.note(f"{known} = {json.dumps(value, ensure_ascii=False)}")


def _unset(session: ChatSession, rest: str) -> None:
    parameters = session.conversation.parameters
    names = [name.replace("-", "_").lower() for name in rest.split()] or list(parameters)
    for name in names:
        if name not in PARAMETERS:
            raise WrongUse(f"There is no parameter {name!r}.", "/set lists them.")
    for name in names:
        parameters.pop(name, None)
    output.note(f"Reset to the default of the server: {', '.join(names) or 'all'}.")


def _system(session: ChatSession, rest: str) -> None:
    conversation = session.conversation
    if not rest:
        output.note(conversation.system or "There is no system message.")
    elif rest.lower() in ("off", "none"):
        conversation.system = None
        output.note("The system message is removed.")
    else:
        conversation.system = rest
        output.note("The system message is set.")


def _format(session: ChatSession, rest: str) -> None:
    conversation = session.conversation
    if not rest:
        current = conversation.answer_format
        output.note(current.name if current else "Answers are free text. /format FILE sets a schema.")
    elif rest.lower() in ("off", "none", "text"):
        conversation.answer_format = None
        output.note("Answers are free text.")
    else:
        conversation.answer_format = read_format(rest)
        output.note(f"Answers follow {rest}.")


def _file(session: ChatSession, rest: str) -> None:
    files = session.conversation.files
    if rest.lower() in ("off", "none"):
        files.clear()
    elif rest:
        files.append(file_part(Path(rest)))
    output.note(f"Files that go with the next question: {len(files)}.")


def _model(session: ChatSession, rest: str) -> None:
    if not rest:
        output.note(session.conversation.model)
        return
    full_name = ready_model(session.client, rest)
    session.conversation.model = rest  # the name as typed, which may select an adapter
    output.note(f"The model is {full_name}.")
    note_base_model(session.client, (rest, full_name))


def _models(session: ChatSession, rest: str) -> None:
    for name in model_names(session.client):
        output.note(f"  {name}")


def model_names(client: ServerClient) -> list[str]:
    return [str(model["id"]) for model in client.get("/v1/models")["data"]]


def _tools(session: ChatSession, rest: str) -> None:
    if session.tools is None:
        raise WrongUse("This chat has no tools.", "`jan-serve run --mcp` starts the MCP servers.")
    session.tools.list()


def _clear(session: ChatSession, rest: str) -> None:
    session.conversation.clear()
    output.note("The messages are deleted; the system message and the parameters stay.")


def _retry(session: ChatSession, rest: str) -> None:
    session.ask_again = _taken_back(session, "repeat")


def _undo(session: ChatSession, rest: str) -> None:
    output.note(f"Removed: {_taken_back(session, 'remove')}")


def _taken_back(session: ChatSession, verb: str) -> str:
    question = session.conversation.undo()
    if question is None:
        raise WrongUse(f"There is no question to {verb}.")
    return question


def _stats(session: ChatSession, rest: str) -> None:
    if rest.lower() in ("on", "off"):
        session.show_statistics = rest.lower() == "on"
        output.note(f"Statistics after each answer: {rest.lower()}.")
    else:
        output.note(session.last_statistics)


def _save(session: ChatSession, rest: str) -> None:
    path = _path(rest)
    try:
        with open(path, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(session.conversation.to_json())
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    output.note(f"Saved to {path}.")


def _load(session: ChatSession, rest: str) -> None:
    path = _path(rest)
    session.conversation.restore(read_file(path))
    output.note(f"Loaded {len(session.conversation.messages)} messages from {path}.")


def _path(rest: str) -> Path:
    if not rest:
        raise WrongUse("Name a file.")
    return user_path(rest)


def _leave(session: ChatSession, rest: str) -> None:
    raise LeaveChat


class SlashCommand(NamedTuple):
    usage: str
    meaning: str
    handler: Callable[[ChatSession, str], None]


_BYE: Final = SlashCommand("/bye", "leave, like Ctrl-D", _leave)
_FILE: Final = SlashCommand("/file FILE|off", "send an image, a PDF or a text with the next question", _file)

COMMANDS: Final[dict[str, SlashCommand]] = {
    "/help": SlashCommand("/help", "this list", _help),
    "/set": SlashCommand("/set [NAME VALUE]", "set a parameter; without arguments, list them", _set),
    "/unset": SlashCommand("/unset [NAME]", "reset a parameter, or all, to the server's default", _unset),
    "/system": SlashCommand("/system [TEXT|off]", "show, set or remove the system message", _system),
    "/format": SlashCommand(
        "/format [FILE|json|off]", "constrain answers to a JSON Schema or a grammar", _format
    ),
    "/file": _FILE,
    "/image": _FILE,
    "/model": SlashCommand("/model [NAME]", "switch to another model", _model),
    "/models": SlashCommand("/models", "list the models of the server", _models),
    "/tools": SlashCommand("/tools", "list the tools of MCP servers; start those that ended", _tools),
    "/retry": SlashCommand("/retry", "repeat the last question", _retry),
    "/undo": SlashCommand("/undo", "remove the last question and its answer", _undo),
    "/clear": SlashCommand("/clear", "remove all messages", _clear),
    "/save": SlashCommand("/save FILE", "save the chat to a file", _save),
    "/load": SlashCommand("/load FILE", "continue a saved chat", _load),
    "/stats": SlashCommand("/stats [on|off]", "show tokens and rates of the last answer, or of each", _stats),
    "/bye": _BYE,
    "/exit": _BYE,
    "/quit": _BYE,
    "/?": SlashCommand("/help", "this list", _help),
}
"""Commands by name. An alias has the usage of its command."""
