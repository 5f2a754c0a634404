"""A ChatFormat is the answer format of a model family:

detection, parsing, layout of calls, and the style of their ids.

Ids of calls are unique in a chat. The caller supplies the randomness.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from jan_serve.chat.call_layout import CALL_ID_PATTERN, INDEX_PATTERN, CallLayout
from jan_serve.chat.delta_builder import DeltaBuilder
from jan_serve.chat.text_stream import Steps, TextStream
from jan_serve.core.messages import CallForm, FormatName, Message, Tool
from jan_serve.text.markers import marker_set

_NUMBER_PARTS: Final = frozenset("0123456789.eE")
_CONTROL_TOKEN: Final = re.compile(r"<[^\w/].*>|<\w+\W>", re.DOTALL)


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
    """The state of parsing one answer. calls: their layout. tools: callable tools by name; without any, nothing is a
    call.

    split_thoughts: reasoning is separate from the text; else it stays in the text with its markers.
    """

    stream: TextStream
    out: DeltaBuilder
    calls: CallLayout
    control_tokens: tuple[str, ...]
    tools: Mapping[str, Tool]
    split_thoughts: bool = True
    starts_in_thought: bool = False

    def open_call(self, name: str, own_id: str = "") -> None:
        """Announce a call, and drop the recording of its text. own_id: that the model wrote, if any."""
        self.stream.stop_recording()
        self.out.open_call(name, own_id)

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
            for token in self.control_tokens:
                recorded = recorded.replace(token, "")
            self.out.text(recorded)


AnswerParser = Callable[["ChatFormat", ParseContext], Steps[None]]


class ChatFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The answer format of a model family. Stateless.

    parse: parses one answer, from the first character after the prompt. It announces a call once it has read the name
    and reached the arguments. Before that, text that breaks the format is plain text, without control tokens; after
    that, the arguments pass as written, JSON or not.
    text_opens: written before the text of an answer, and after `calls.after_thought` if a thought precedes; a
    constraint on the text begins after it. special_tokens: control tokens that the engine must leave in the text.
    text_before_calls_opens: in place of `text_opens` where calls follow in a message of their own.
    thought_field: the message key from which the template reads reasoning. other_calls: layouts in which templates
    write the calls of a history too. form: that of one template, which `calls` has.
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
    other_calls: tuple[CallLayout, ...] = ()
    form: CallForm | None = None

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Those of `special_tokens` that are never shown: what an answer may be about (`<think>`, `[ARGS]`) is no
        such."""
        return tuple(token for token in self.special_tokens if _CONTROL_TOKEN.fullmatch(token))

    @property
    def full_name(self) -> FormatName:
        """The name, and the form."""
        return FormatName(self.name, self.form)

    def prompt_opens_thought(self, prompt: str) -> bool:
        """Whether a rendered prompt ends with the opening marker of a thought."""
        end = prompt.rstrip()
        return self.thought is not None and any(
            end.endswith(marker.rstrip()) for marker in self.thought.opens
        )


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

    def __call__(self, name: str, own_id: str = "") -> str:
        """A new id for a call of the tool `name`. Raises RuntimeError if `random_text` returns only taken ids.

        own_id: that the model wrote. It stays if it has the style and is new: the history then shows what it wrote.
        """
        if own_id not in self._taken and self._has_style(own_id, name):
            self._taken.add(own_id)
            return own_id
        for _ in range(_ATTEMPTS):
            call_id = self._make(name)
            if call_id not in self._taken:
                self._taken.add(call_id)
                return call_id
        raise RuntimeError(f"no new id for a tool call in {_ATTEMPTS} attempts")

    def _has_style(self, own_id: str, name: str) -> bool:
        match self._style:
            case IdStyle.PLAIN:
                return re.fullmatch(CALL_ID_PATTERN, own_id) is not None
            case IdStyle.NINE_CHARACTERS:
                return nine_characters(own_id) == own_id
            case IdStyle.FUNCTION_INDEX:
                return re.fullmatch(rf"functions\.{re.escape(name)}:({INDEX_PATTERN})", own_id) is not None

    def _make(self, name: str) -> str:
        match self._style:
            case IdStyle.PLAIN:
                return f"call_{self._random_text()}"
            case IdStyle.NINE_CHARACTERS:
                return self._random_text()[:_NINE]
            case IdStyle.FUNCTION_INDEX:
                self._next_index += 1
                return f"functions.{name}:{self._next_index - 1}"
