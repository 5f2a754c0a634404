"""The loop of an interactive chat: read, ask, show, until the person leaves."""

from __future__ import annotations

from typing import Protocol

from jan_serve.cli.chat.answer import ask
from jan_serve.cli.chat.several_lines import message_of
from jan_serve.cli.chat.show_answer import AnswerDisplay
from jan_serve.cli.chat.slash_commands import Desk, Leave, obey
from jan_serve.cli.errors import CommandError


class Editor(Protocol):
    """Where messages come from; see prompt.LineEditor."""

    def read(self, *, offered: str = "") -> str:
        """One input. Raises KeyboardInterrupt, EOFError."""
        ...


def chat(desk: Desk, editor: Editor) -> None:
    """Until Ctrl-D or `/bye`. An answer that fails is told of, and the chat goes on without it."""
    offered = ""
    while True:
        try:
            text = message_of(editor.read(offered=offered))
        except EOFError:
            return
        except KeyboardInterrupt:
            offered = ""
            desk.output.note("Ctrl-D or /bye leaves.")
            continue
        offered = ""
        if not text.strip():
            continue
        try:
            if not text.startswith("/"):
                _answer(desk, text)
            else:
                obey(desk, text)
                if desk.ask_again is not None:
                    question, desk.ask_again = desk.ask_again, None
                    _answer(desk, question)
        except Leave:
            return
        except KeyboardInterrupt:
            desk.output.note("Stopped.")
        except CommandError as error:
            desk.output.error(error.message, error.next_step)


def _answer(desk: Desk, question: str) -> None:
    """Ask, show, and remember both. A question without any answer is not remembered."""
    display = AnswerDisplay(desk.output)
    try:
        answer = ask(desk.connection, desk.conversation.request(question), display)
    finally:
        display.end()
    desk.last_statistics = answer.statistics()
    if answer.stopped:
        desk.output.note("Stopped.")
    elif answer.finish_reason == "length":
        desk.output.note("The answer was cut: max_tokens or the context is used up. /clear makes room.")
    if answer.text or not answer.stopped:
        desk.conversation.add(question, answer.text)
    if desk.show_statistics:
        desk.output.note(desk.last_statistics)
    desk.output.note()
