"""Builds the deltas of one choice: text, reasoning and tool calls. White space where a thought or a call begins or ends
belongs to the format and is dropped; so it is held until the text after it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.core.events import ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta

IdFactory = Callable[[str, str], str]
"""Makes the id, unique in a chat, of a new call: of its tool's name and the id that the model wrote, "" if none."""

Delta = TextDelta | ReasoningDelta | ToolCallDelta

BREAK: Final = "\n\n"
"""Separates two messages of one answer, in formats that write several."""


class DeltaBuilder:
    """Merges adjacent pieces of one kind into one delta."""

    def __init__(self, index: int, new_id: IdFactory) -> None:
        self._index = index
        self._new_id = new_id
        self._deltas: list[Delta] = []
        # The delta being built, without its text; the text is in _pieces.
        self._open: Delta | None = None
        self._pieces: list[str] = []
        self._tokens: tuple[TokenInfo, ...] = ()
        self._space = ""
        self._thinking = False
        # Only white space since the last thought or call. False at the very start, where white space is kept.
        self._blank = False
        self._started = False
        self._calls = 0
        self._last_arguments: list[str] = []

    @property
    def last_arguments(self) -> str:
        """The arguments of the latest call, so far."""
        return "".join(self._last_arguments)

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def has_text(self) -> bool:
        """Whether text came since the start, or since the last thought or call."""
        return self._started

    def add_tokens(self, tokens: tuple[TokenInfo, ...]) -> None:
        """Add tokens, to be sent with the next text or reasoning."""
        self._tokens += tokens

    def take(self) -> list[Delta]:
        """Return the deltas since the last take."""
        self._close_delta()
        deltas, self._deltas = self._deltas, []
        return deltas

    def text(self, text: str) -> None:
        """Append to the text, or to the thought if one is open."""
        body = text.rstrip()
        if not body:
            self._space += text
            return
        spaced = self._space + body
        self._space = text[len(body) :]
        self._emit(_without_breaks(spaced) if self._blank else spaced)
        self._blank = False
        self._started = True

    def break_text(self) -> None:
        """Begin a new message: BREAK separates it from any text before it."""
        if self._started:
            self._space = BREAK

    def open_thought(self) -> None:
        self._drop_space()
        self._thinking = True

    def close_thought(self) -> None:
        self._drop_space()
        self._thinking = False

    def open_call(self, name: str, own_id: str = "") -> None:
        self._drop_space()
        self._close_delta()
        self._open = ToolCallDelta(self._index, self._calls, self._new_id(name, own_id), name)
        self._calls += 1
        self._last_arguments = []

    def arguments(self, text: str) -> None:
        """Append JSON text to the arguments of the open call."""
        if not isinstance(self._open, ToolCallDelta):
            self._close_delta()
            self._open = ToolCallDelta(self._index, self._calls - 1)
        self._pieces.append(text)
        self._last_arguments.append(text)

    def finish(self) -> None:
        """Emit the white space and tokens still held."""
        if not self._blank and self._space:
            self._emit(self._space)
        self._space = ""
        if self._tokens:
            self._emit("")

    def _drop_space(self) -> None:
        self._space = ""
        self._blank = True
        self._started = False

    def _emit(self, text: str) -> None:
        kind = ReasoningDelta if self._thinking else TextDelta
        if not isinstance(self._open, kind) or self._tokens:
            self._close_delta()
            self._open = kind(self._index, "", self._tokens)
            self._tokens = ()
        self._pieces.append(text)

    def _close_delta(self) -> None:
        text = "".join(self._pieces)
        match self._open:
            case TextDelta() | ReasoningDelta() as open_delta:
                self._deltas.append(type(open_delta)(self._index, text, open_delta.tokens))
            case ToolCallDelta(call_index=call, id=call_id, name=name) if text or call_id is not None:
                self._deltas.append(ToolCallDelta(self._index, call, call_id, name, text))
            case _:
                pass
        self._open = None
        self._pieces = []


def _without_breaks(text: str) -> str:
    """Without the white space at its start, except the indentation of its first line after a line break."""
    body = text.lstrip()
    space = text[: len(text) - len(body)]
    return space[space.rfind("\n") + 1 :] + body if "\n" in space else body
