"""A ChatFormat is the answer format of a model family: detection, parsing and layout of calls. A StreamParser splits a
model's answer into text, reasoning and tool calls by it while the answer streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from jan_serve.chat.call_layout import CallLayout, IdStyle
from jan_serve.chat.delta_builder import Delta, DeltaBuilder, IdFactory
from jan_serve.chat.text_stream import Steps, TextStream
from jan_serve.core.events import TokenInfo
from jan_serve.core.messages import CallForm, FormatName, Tool
from jan_serve.text.markers import marker_set

_NUMBER_PARTS: Final = frozenset("0123456789.eE")
_CONTROL_TOKEN: Final = re.compile(r"<[^\w/].*>|<\w+\W>", re.DOTALL)


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
    parse: Callable[[StreamParser], Steps[None]]
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


class StreamParser:
    """Parses one choice of an answer: pieces of text in, deltas out. Not a validator, and it never fails.

    The joined deltas do not depend on how the text was cut. A call that breaks the format before its name and the start
    of its arguments is text, markers included. After that its arguments pass as the model writes them, even if they are
    invalid JSON or incomplete.

    The format's parser reads `stream`, writes to `out`, and calls `open_call`, `pass_rest` and `release`.
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
        self.chat_format = chat_format
        self.control_tokens = chat_format.control_tokens
        self.stream = TextStream()
        self.out = DeltaBuilder(index, new_id)
        self.tools = {tool.name: tool for tool in tools}
        self.split_thoughts = split_thoughts
        self.starts_in_thought = starts_in_thought
        self._steps = chat_format.parse(self)
        self._ended = False

    @property
    def calls(self) -> int:
        """Number of calls announced so far. If any, an answer that ends by itself has the reason `tool_calls`."""
        return self.out.calls

    @property
    def has_whole_calls(self) -> bool:
        """Whether there are calls, and the arguments of the latest one are JSON."""
        if not self.out.calls:
            return False
        try:
            msgspec.json.decode(self.out.last_arguments)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def feed(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> list[Delta]:
        """Parse more of the answer. Text that may begin a marker is held back.

        tokens: emitted with the next text or reasoning; those of calls and markers too, so none is lost.
        """
        self.stream.feed(text)
        self.out.add_tokens(tokens)
        self._step()
        return self.out.take()

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """End the answer. Must be called once, with no feed after it.

        cut: a limit or a stop text ended it. A call without arguments is dropped then, and so is an unfinished marker.
        """
        self.stream.close(cut=cut)
        self._step()
        if not self._ended:
            raise RuntimeError("a parser waits for text after the end of the answer")
        self.out.finish()
        return self.out.take()

    def _step(self) -> None:
        if self._ended:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._ended = True

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
