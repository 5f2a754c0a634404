"""The answer format of a model family: detection, parsing and layout of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import msgspec

from jan_serve.chat.call_layout import CallLayout
from jan_serve.chat.delta_builder import DeltaBuilder
from jan_serve.chat.text_stream import Steps, TextStream
from jan_serve.core.messages import Tool
from jan_serve.text.markers import marker_set

_NUMBER_PARTS: Final = frozenset("0123456789.eE")


class IdStyle(Enum):
    """The style of call ids that a template checks or shows."""

    PLAIN = "plain"
    NINE_CHARACTERS = "nine_characters"
    """Nine letters and digits: Mistral's templates reject other ids."""
    FUNCTION_INDEX = "function_index"
    """`functions.NAME:INDEX`, with the index counted over the chat: Kimi's templates show it to the model."""


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """The markers around a thought.

    opens, closes: all are parsed, the first of each is written. ends: other markers that also end a thought, and keep
    their own meaning. anywhere: a thought may begin in the middle of text; else only if no text came since the start or
    the last call.
    """

    opens: tuple[str, ...] = ("<think>",)
    closes: tuple[str, ...] = ("</think>",)
    ends: tuple[str, ...] = ()
    anywhere: bool = False

    def is_in(self, template: str | None) -> bool:
        """Whether a chat template writes one of its markers."""
        return any(mark.strip() in (template or "") for mark in (*self.opens, *self.closes))


class Signature(msgspec.Struct, frozen=True):
    """Strings that a chat template must or must not contain."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def matches(self, template: str) -> bool:
        return (
            all(string in template for string in self.all_of)
            and (not self.any_of or any(string in template for string in self.any_of))
            and not any(string in template for string in self.none_of)
        )


class ParseContext(msgspec.Struct):
    """The state of parsing one answer. tools: callable tools by name; without any, nothing is a call.

    split_thoughts: reasoning is separate from the text; else it stays in the text with its markers.
    """

    stream: TextStream
    out: DeltaBuilder
    tools: Mapping[str, Tool]
    split_thoughts: bool = True
    starts_in_thought: bool = False

    def open_call(self, name: str) -> None:
        """Announce a call, and drop the recording of its text."""
        self.stream.stop_recording()
        self.out.open_call(name)

    def pass_rest(self, closers: tuple[str, ...], read: str = "") -> Steps[None]:
        """Pass on the text after malformed arguments, up to a closer, so that clients can see the error.

        read: the beginning of that text, if it is read already. A space keeps it from a number: 1 and 2 are not 12.
        """
        first = read[:1] or (yield from self.stream.peek(1))
        if self.stream.at_end:
            return
        self.out.arguments(f" {read}" if first in _NUMBER_PARTS else read)
        if closers:
            yield from self.stream.read_until(marker_set(*closers), self.out.arguments)

    def release(self, name: str = "", suffix: str = "") -> None:
        """Emit the text read since `stream.record()`: it is not a call. One that a limit cut short is dropped.

        name: its beginning, where only a call of a known tool is one. suffix: may follow the name.
        """
        recorded = self.stream.stop_recording()
        is_cut_call = self.stream.is_cut_short and (
            not name or any((tool + suffix).startswith(name) for tool in self.tools)
        )
        if not is_cut_call:
            self.out.text(recorded)


AnswerParser = Callable[["ChatFormat", ParseContext], Steps[None]]


class ChatFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The answer format of a model family. Stateless.

    parse: parses one answer, from the first character after the prompt. It announces a call once it has read the name
    and reached the arguments. Before that, text that breaks the format is plain text, markers included; after that, the
    arguments pass as written, JSON or not.
    text_opens: written before the text of an answer, and after `calls.after_thought` if a thought precedes; a
    constraint on the text begins after it. special_tokens: control tokens that the engine must leave in the text.
    text_before_calls_opens: in place of `text_opens` where calls follow in a message of their own.
    thought_field: the message key from which the template reads reasoning.
    """

    name: str
    signature: Signature
    parse: AnswerParser
    calls: CallLayout
    thought: Thought | None = msgspec.field(default_factory=Thought)
    text_opens: str = ""
    text_before_calls_opens: str = ""
    special_tokens: tuple[str, ...] = ()
    id_style: IdStyle = IdStyle.PLAIN
    thought_field: str = "reasoning_content"

    def prompt_opens_thought(self, prompt: str) -> bool:
        """Whether a rendered prompt ends with the opening marker of a thought."""
        end = prompt.rstrip()
        return self.thought is not None and any(
            end.endswith(marker.rstrip()) for marker in self.thought.opens
        )
