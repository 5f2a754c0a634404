"""Splits a model's answer into text, reasoning and tool calls while it streams."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jan_serve.chat.chat_format import ChatFormat, ParseContext
from jan_serve.chat.delta_builder import Delta, DeltaBuilder, IdFactory
from jan_serve.chat.text_stream import TextStream
from jan_serve.core.events import TokenInfo
from jan_serve.core.messages import Tool


class StreamParser:
    """Parses one choice of an answer: pieces of text in, deltas out. Not a validator, and it never fails.

    The joined deltas do not depend on how the text was cut. A call that breaks the format before its name and the start
    of its arguments is text, markers included. After that its arguments pass as the model writes them, even if they are
    invalid JSON or incomplete.
    """

    def __init__(
        self,
        chat_format: ChatFormat,
        new_id: IdFactory,
        *,
        index: int = 0,
        tools: Sequence[Tool] = (),
        split_thoughts: bool = True,
        starts_in_thought: bool = False,
    ) -> None:
        """index: of the choice. tools: callable tools; without any, nothing is a call.

        split_thoughts: emit reasoning as ReasoningDelta; else it stays in the text with its markers.
        starts_in_thought: the prompt opened a thought (`ChatFormat.prompt_opens_thought`).
        """
        self._stream = TextStream()
        self._out = DeltaBuilder(index, new_id)
        self._context = ParseContext(
            stream=self._stream,
            out=self._out,
            calls=chat_format.calls,
            control_tokens=chat_format.control_tokens,
            tools={tool.name: tool for tool in tools},
            split_thoughts=split_thoughts,
            starts_in_thought=starts_in_thought,
        )
        self._steps = chat_format.parse(chat_format, self._context)
        self._ended = False

    @property
    def calls(self) -> int:
        """Number of calls announced so far. If any, an answer that ends by itself has the reason `tool_calls`."""
        return self._out.calls

    @property
    def has_whole_calls(self) -> bool:
        """Whether there are calls, and the arguments of the latest one are JSON."""
        if not self._out.calls:
            return False
        try:
            msgspec.json.decode(self._out.last_arguments)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def feed(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> list[Delta]:
        """Parse more of the answer. Text that may begin a marker is held back.

        tokens: emitted with the next text or reasoning; those of calls and markers too, so none is lost.
        """
        self._stream.feed(text)
        self._out.add_tokens(tokens)
        self._step()
        return self._out.take()

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """End the answer. Must be called once, with no feed after it.

        cut: a limit or a stop text ended it. A call without arguments is dropped then, and so is an unfinished marker.
        """
        self._stream.close(cut=cut)
        self._step()
        if not self._ended:
            raise RuntimeError("a parser waits for text after the end of the answer")
        self._out.finish()
        return self._out.take()

    def _step(self) -> None:
        if self._ended:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._ended = True
