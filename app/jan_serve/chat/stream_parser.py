"""Splits a model's answer, while it comes, into text, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from jan_serve.chat.answer_writer import AnswerWriter, Delta, IdFactory
from jan_serve.chat.formats.format import ChatFormat, Reading
from jan_serve.chat.text_stream import TextStream
from jan_serve.core.events import TokenInfo
from jan_serve.core.messages import Tool


class StreamParser:
    """One choice of one answer: pieces of text in, deltas out. Not a validator, and it never fails.

    Joined, the deltas do not depend on how the text was cut. What looks like a call but breaks the format before its
    name and the beginning of its arguments are there is text, markers included. Once a call is announced its arguments
    are passed on as the model writes them: where it breaks JSON, or stops in the middle, so does the argument text.
    """

    def __init__(
        self,
        form: ChatFormat,
        new_id: IdFactory,
        *,
        index: int = 0,
        tools: Sequence[Tool] = (),
        split_thoughts: bool = True,
        starts_in_thought: bool = False,
    ) -> None:
        """new_id: makes ids of calls. index: the choice. tools: what may be called; without any, nothing is a call.

        split_thoughts: hand out reasoning apart from the text; else it stays there with its markers.
        starts_in_thought: the prompt opened a thought (`ChatFormat.prompt_opens_thought`).
        """
        self._stream = TextStream()
        self._out = AnswerWriter(index, new_id)
        self._reading = Reading(
            stream=self._stream,
            out=self._out,
            tools={tool.name: tool for tool in tools},
            split_thoughts=split_thoughts,
            starts_in_thought=starts_in_thought,
        )
        self._steps = form.read(form, self._reading)
        self._started_in_thought = starts_in_thought and split_thoughts
        self._begun = False
        self._ended = False

    @property
    def in_thought(self) -> bool:
        """Whether the text so far ends inside of a thought."""
        return self._out.thinking if self._begun else self._started_in_thought

    @property
    def calls(self) -> int:
        """Calls announced so far. With any, an answer that ends by itself ended for `tool_calls`."""
        return self._out.calls

    def feed(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> list[Delta]:
        """More of the answer. Text that may be the beginning of a marker is held back.

        tokens: go with the next text or reasoning; those of calls and markers too, so that none is lost.
        """
        self._stream.feed(text)
        self._out.add_tokens(tokens)
        self._step()
        return self._out.take()

    def finish(self) -> list[Delta]:
        """The answer has ended. Must be called once, and nothing fed after it."""
        self._stream.close()
        self._step()
        if not self._ended:
            raise RuntimeError("a parser waits for text behind the end of the answer")
        self._out.finish()
        return self._out.take()

    def _step(self) -> None:
        self._begun = True
        if self._ended:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._ended = True
