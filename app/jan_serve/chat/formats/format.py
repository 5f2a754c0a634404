"""What is known of the format that a family of models writes its answers in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from jan_serve.chat.answer_writer import AnswerWriter
from jan_serve.chat.formats.layout import CallLayout
from jan_serve.chat.text_stream import Steps, TextStream
from jan_serve.core.messages import Tool


class IdStyle(Enum):
    """What ids of calls must look like, because the template checks or shows them."""

    PLAIN = "plain"
    NINE_CHARACTERS = "nine_characters"
    """Nine letters and digits: Mistral's templates refuse others."""
    FUNCTION_INDEX = "function_index"
    """`functions.NAME:INDEX`, counted over the chat: Kimi's templates show it to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """The markers around a thought.

    opens, closes: the first of each is what the model is told to write. ends: markers that end a thought without its
    closing marker, and then mean what they always mean. anywhere: a thought may begin in the middle of text; else only
    where no text has come since the start or since the last call.
    """

    opens: tuple[str, ...] = ("<think>",)
    closes: tuple[str, ...] = ("</think>",)
    ends: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """What the text of a template must and must not contain."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def match(self, template: str) -> bool:
        """Whether they hold for `template`."""
        return (
            all(mark in template for mark in self.all_of)
            and (not self.any_of or any(mark in template for mark in self.any_of))
            and not any(mark in template for mark in self.none_of)
        )


@dataclass(slots=True)
class Reading:
    """One answer that is being parsed. tools: what a call may name; without any, nothing is a call.

    split_thoughts: reasoning is handed out apart from the text; else it stays in the text, markers and all.
    """

    stream: TextStream
    out: AnswerWriter
    tools: Mapping[str, Tool]
    split_thoughts: bool = True
    starts_in_thought: bool = False

    def open_call(self, name: str) -> None:
        """A call is certain: announce it, and stop holding what was read for it."""
        self.stream.recorded()
        self.out.open_call(name)

    def release(self) -> None:
        """What was read since `stream.record()` is no call: it is text."""
        self.out.text(self.stream.recorded())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """A family's format: how to tell it by its template, parse its answers and write its calls. No state.

    read: parses one answer, from the first character after the prompt. It announces a call when it has the name and
    the arguments begin; what breaks the format before that is text, markers included; after that, the arguments are
    what the model wrote, JSON or not.
    text_opens: what the model writes before the text of an answer (behind `calls.after_thought`, after a thought); a
    constraint on the text begins after it. special_tokens: control tokens that the engine must leave in the text.
    thought_field: the key under which the template looks for a message's reasoning.
    """

    name: str
    marks: Marks
    read: Callable[[ChatFormat, Reading], Steps[None]]
    calls: CallLayout
    thought: Thought | None = field(default_factory=Thought)
    text_opens: str = ""
    special_tokens: tuple[str, ...] = ()
    id_style: IdStyle = IdStyle.PLAIN
    thought_field: str = "reasoning_content"

    def matches(self, template: str) -> bool:
        """Whether a model with this chat template writes this format."""
        return self.marks.match(template)

    def prompt_opens_thought(self, prompt: str) -> bool:
        """Whether a rendered prompt ends inside a thought that its template opened."""
        end = prompt.rstrip()
        return self.thought is not None and any(end.endswith(mark.rstrip()) for mark in self.thought.opens)
