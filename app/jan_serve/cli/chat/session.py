"""The loop of an interactive chat, and its multiline input: lines within triple quotes or joined by backslashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.cli.chat.exchange import exchange
from jan_serve.cli.chat.slash_commands import ChatSession, LeaveChat, run_slash_command
from jan_serve.cli.errors import CommandError
from jan_serve.cli.output import output

_QUOTES: Final = '"""'


def is_complete(text: str) -> bool:
    """Whether Enter sends the text rather than start a new line."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES):
        return len(stripped) >= 2 * len(_QUOTES) and stripped.endswith(_QUOTES)
    # Two backslashes at the end are an escaped one.
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0


def message_of(text: str) -> str:
    """The message of a complete input, without the quotes or the backslashes at line ends."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES) and is_complete(text):
        return stripped[len(_QUOTES) : -len(_QUOTES)].strip("\n")
    lines = stripped.split("\n")
    return "\n".join([*(line.removesuffix("\\") for line in lines[:-1]), lines[-1]])


def chat(session: ChatSession, read: Callable[[], str]) -> None:
    """Run until Ctrl-D or `/bye`. After a failed request the chat continues. read: see LineEditor.read."""
    while True:
        try:
            text = message_of(read())
        except EOFError:
            return
        except KeyboardInterrupt:
            output.note("Ctrl-D or /bye leaves.")
            continue
        if not text.strip():
            continue
        try:
            if not text.startswith("/"):
                _answer(session, text)
            else:
                run_slash_command(session, text)
                if session.ask_again is not None:
                    question, session.ask_again = session.ask_again, None
                    _answer(session, question)
        except LeaveChat:
            return
        except KeyboardInterrupt:
            output.note("Stopped.")
        except CommandError as error:
            output.error(error.message, error.next_step)


def _answer(session: ChatSession, question: str) -> None:
    """Ask and print the answer. The conversation keeps both unless the answer was stopped before its first token."""
    asked = exchange(session.client, session.conversation, question, session.tools)
    answer = asked.answer
    session.last_statistics = answer.statistics()
    if answer.stopped:
        output.note("Stopped.")
    elif answer.finish_reason == "length":
        output.note(
            "The answer is incomplete: max_tokens or the context is used up. /clear frees the context."
        )
    if answer.text or not answer.stopped:
        session.conversation.add(question, answer.text, asked.steps)
        if session.kept is not None:
            try:
                session.kept.save(session.conversation)
            except CommandError as error:
                output.error(f"The server does not keep this: {error.message}", error.next_step)
    if session.show_statistics:
        output.note(session.last_statistics)
    output.note()
