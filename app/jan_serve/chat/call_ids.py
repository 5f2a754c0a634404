"""Ids of tool calls: never twice in a chat, and of the form that the template wants. Chance is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from jan_serve.chat.formats.format import IdStyle
from jan_serve.core.messages import Message

_NINE: Final = 9
_ATTEMPTS: Final = 1000


def ids_in(messages: Iterable[Message]) -> frozenset[str]:
    """The ids that the calls and results of a chat already have."""
    ids = {call.id for message in messages for call in message.tool_calls}
    return frozenset(ids | {message.tool_call_id for message in messages if message.tool_call_id is not None})


class CallIds:
    """Makes ids for the calls of one request, over all of its choices. An instance is an `IdFactory`."""

    def __init__(self, style: IdStyle, taken: Iterable[str], draw: Callable[[], str]) -> None:
        """taken: ids that are in the chat. draw: new text at each call, nine or more ASCII letters and digits."""
        self._style = style
        self._taken = set(taken)
        self._draw = draw
        self._next_index = len(self._taken)

    def __call__(self, name: str) -> str:
        """A new id for a call of the tool `name`. Raises RuntimeError if `draw` keeps giving what is taken."""
        for _ in range(_ATTEMPTS):
            made = self._make(name)
            if made not in self._taken:
                self._taken.add(made)
                return made
        raise RuntimeError(f"no new id for a tool call in {_ATTEMPTS} attempts")

    def _make(self, name: str) -> str:
        match self._style:
            case IdStyle.PLAIN:
                return f"call_{self._draw()}"
            case IdStyle.NINE_CHARACTERS:
                return self._draw()[:_NINE]
            case IdStyle.FUNCTION_INDEX:
                self._next_index += 1
                return f"functions.{name}:{self._next_index - 1}"
