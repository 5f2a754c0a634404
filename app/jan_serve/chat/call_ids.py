"""Ids of tool calls: unique in a chat, in the style that the template requires. The caller supplies the randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from jan_serve.chat.chat_format import IdStyle
from jan_serve.core.messages import Message

_NINE: Final = 9
_ATTEMPTS: Final = 1000


def ids_in(messages: Iterable[Message]) -> frozenset[str]:
    """The ids of the calls and results of a chat."""
    ids = {call.id for message in messages for call in message.tool_calls}
    return frozenset(ids | {message.tool_call_id for message in messages if message.tool_call_id is not None})


def nine_characters(call_id: str) -> str:
    """The id itself if it has nine letters and digits; else such an id made from it, always the same."""
    if len(call_id) == _NINE and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_NINE]


class CallIds:
    """Makes ids for the calls of one request, across all its choices. An instance is an `IdFactory`."""

    def __init__(self, style: IdStyle, taken: Iterable[str], random_text: Callable[[], str]) -> None:
        """taken: ids in use. random_text: returns nine or more random ASCII letters and digits."""
        self._style = style
        self._taken = set(taken)
        self._random_text = random_text
        self._next_index = len(self._taken)

    def __call__(self, name: str) -> str:
        """A new id for a call of the tool `name`. Raises RuntimeError if `random_text` returns only taken ids."""
        for _ in range(_ATTEMPTS):
            call_id = self._make(name)
            if call_id not in self._taken:
                self._taken.add(call_id)
                return call_id
        raise RuntimeError(f"no new id for a tool call in {_ATTEMPTS} attempts")

    def _make(self, name: str) -> str:
        match self._style:
            case IdStyle.PLAIN:
                return f"call_{self._random_text()}"
            case IdStyle.NINE_CHARACTERS:
                return self._random_text()[:_NINE]
            case IdStyle.FUNCTION_INDEX:
                self._next_index += 1
                return f"functions.{name}:{self._next_index - 1}"
