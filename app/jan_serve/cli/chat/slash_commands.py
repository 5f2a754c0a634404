"""The commands of an interactive chat: what begins with `/`. Each says what it did; a wrong one changes nothing."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from jan_serve.cli.chat.answer_format import read_format
from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.parameters import PARAMETERS, parameter
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_file
from jan_serve.cli.output import Output


class Leave(Exception):
    """The chat is over."""


@dataclass(slots=True)
class Desk:
    """What the commands work on. ask_again: a question that is to be asked once more, set by `/retry`."""

    connection: ServerConnection
    conversation: Conversation
    output: Output
    show_statistics: bool = False
    ask_again: str | None = None
    last_statistics: str = field(default="no answer so far")


Handler: TypeAlias = Callable[[Desk, str], None]


def obey(desk: Desk, line: str) -> None:
    """Do what a line that begins with `/` says. Raises CommandError, Leave."""
    word, _, rest = line.strip().partition(" ")
    found = COMMANDS.get(word.lower())
    if found is None:
        near = difflib.get_close_matches(word.lower(), list(COMMANDS), n=1)
        hint = (
            f"Did you mean {near[0]}?"
            if near
            else '/help lists them; a message that begins with / goes between """ and """.'
        )
        raise CommandError(f"There is no command {word}.", hint, WRONG_USE)
    found.handler(desk, rest.strip())


def _help(desk: Desk, rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    shown = {command.usage: command.meaning for command in COMMANDS.values()}
    for usage, meaning in shown.items():
        desk.output.note(f"  {usage:<{width}}  {meaning}")
    desk.output.note()
    desk.output.note(
        '  Several lines: begin with """ and end with """, or end a line with \\, or press Alt-Enter.'
    )
    desk.output.note("  Ctrl-C stops an answer; Ctrl-D leaves.")


def _set(desk: Desk, rest: str) -> None:
    parameters = desk.conversation.parameters
    if not rest:
        width = max(map(len, PARAMETERS))
        for name, meaning in PARAMETERS.items():
            value = f" = {json.dumps(parameters[name], ensure_ascii=False)}" if name in parameters else ""
            desk.output.note(f"  {name:<{width}}  {meaning}{value}")
        return
    name, _, text = rest.replace("=", " ", 1).partition(" ")
    known, value = parameter(name, text)
    parameters[known] = value
    desk.output.note(f"{known} = {json.dumps(value, ensure_ascii=False)}")


def _unset(desk: Desk, rest: str) -> None:
    parameters = desk.conversation.parameters
    names = [name.replace("-", "_").lower() for name in rest.split()] or list(parameters)
    for name in names:
        if name not in PARAMETERS:
            raise CommandError(f"There is no parameter {name!r}.", "/set lists them.", WRONG_USE)
    for name in names:
        parameters.pop(name, None)
    desk.output.note(f"As the server has it: {', '.join(names) or 'everything'}.")


def _system(desk: Desk, rest: str) -> None:
    conversation = desk.conversation
    if not rest:
        desk.output.note(conversation.system or "There is no system message.")
    elif rest.lower() in ("off", "none"):
        conversation.system = None
        desk.output.note("No system message from now on.")
    else:
        conversation.system = rest
        desk.output.note("The system message is set.")


def _format(desk: Desk, rest: str) -> None:
    conversation = desk.conversation
    if not rest:
        current = conversation.answer_format
        desk.output.note(
            current.name if current else "Answers are free text. /format FILE holds them to a schema."
        )
    elif rest.lower() in ("off", "none", "text"):
        conversation.answer_format = None
        desk.output.note("Answers are free text.")
    else:
        conversation.answer_format = read_format(rest)
        desk.output.note(f"Answers follow {rest} from now on.")


def _model(desk: Desk, rest: str) -> None:
    if not rest:
        desk.output.note(desk.conversation.model)
        return
    full_name = load_model(desk.connection, rest, desk.output)
    desk.conversation.model = rest  # as it was asked for: that may mean an adapter of the model too
    desk.output.note(f"Answers come from {full_name} now.")


def _models(desk: Desk, rest: str) -> None:
    for name in model_names(desk.connection):
        desk.output.note(f"  {name}")


def model_names(connection: ServerConnection) -> list[str]:
    """What the server can load."""
    return [str(model["id"]) for model in connection.get("/v1/models")["data"]]


def _clear(desk: Desk, rest: str) -> None:
    desk.conversation.clear()
    desk.output.note("What was said is forgotten; system message and parameters stay.")


def _retry(desk: Desk, rest: str) -> None:
    question = desk.conversation.take_back()
    if question is None:
        raise CommandError("There is no question to ask again.", status=WRONG_USE)
    desk.ask_again = question


def _undo(desk: Desk, rest: str) -> None:
    question = desk.conversation.take_back()
    if question is None:
        raise CommandError("There is nothing to take back.", status=WRONG_USE)
    desk.output.note(f"Taken back: {question}")


def _stats(desk: Desk, rest: str) -> None:
    if rest.lower() in ("on", "off"):
        desk.show_statistics = rest.lower() == "on"
        desk.output.note(f"Statistics after each answer: {rest.lower()}.")
    else:
        desk.output.note(desk.last_statistics)


def _save(desk: Desk, rest: str) -> None:
    path = _path(rest)
    try:
        path.write_text(desk.conversation.to_json(), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    desk.output.note(f"Saved to {path}.")


def _load(desk: Desk, rest: str) -> None:
    path = _path(rest)
    desk.conversation.restore(read_file(path))
    desk.output.note(f"{len(desk.conversation.messages) // 2} questions and answers from {path}.")


def _path(rest: str) -> Path:
    if not rest:
        raise CommandError("Name a file.", status=WRONG_USE)
    return Path(rest).expanduser()


def _leave(desk: Desk, rest: str) -> None:
    raise Leave


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One of them. usage: as the help shows it."""

    usage: str
    meaning: str
    handler: Handler


_BYE: Final = SlashCommand("/bye", "leave, as Ctrl-D does", _leave)

COMMANDS: Final[dict[str, SlashCommand]] = {
    "/help": SlashCommand("/help", "this list", _help),
    "/set": SlashCommand("/set [NAME VALUE]", "change a parameter; alone, list them", _set),
    "/unset": SlashCommand("/unset [NAME]", "a parameter, or all, as the server has it", _unset),
    "/system": SlashCommand("/system [TEXT|off]", "show, set or drop the system message", _system),
    "/format": SlashCommand("/format [FILE|json|off]", "hold answers to a JSON Schema or a grammar", _format),
    "/model": SlashCommand("/model [NAME]", "go on with another model", _model),
    "/models": SlashCommand("/models", "list the models of the server", _models),
    "/retry": SlashCommand("/retry", "ask the last question again", _retry),
    "/undo": SlashCommand("/undo", "forget the last question and its answer", _undo),
    "/clear": SlashCommand("/clear", "forget everything that was said", _clear),
    "/save": SlashCommand("/save FILE", "write the chat to a file", _save),
    "/load": SlashCommand("/load FILE", "go on with the chat of a file", _load),
    "/stats": SlashCommand("/stats [on|off]", "tokens and rates of the last answer, or of each", _stats),
    "/bye": _BYE,
    "/exit": _BYE,
    "/quit": _BYE,
    "/?": SlashCommand("/help", "this list", _help),
}
"""By name. A second name of a command has the usage of the first."""
