"""Reads answers with thoughts and calls between markers. Calls are JSON: an object with name and arguments, or a bare
name before the arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.json_stream import copy_json, json_string_value, read_json, read_json_string
from jan_serve.chat.text_stream import NAME, Steps, discard
from jan_serve.text.markers import marker_set

CallParser = Callable[[StreamParser, str], Steps[None]]
"""Parses calls after the given marker. Releases text that is not a call (`StreamParser.release`)."""


class MarkerParser(msgspec.Struct, frozen=True):
    """The parser of a format whose calls begin at one of `openers`.

    ignored: markers without meaning, such as those around all calls. around_text: ordinary text that opens and closes
    the text of an answer, ignored there only. first: parses calls without a marker, at the start of the answer or after
    a thought; its marker is "".
    """

    read_calls: CallParser
    openers: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    around_text: tuple[str, str] = ("", "")
    first: CallParser | None = None

    def __call__(self, context: StreamParser) -> Steps[None]:
        return _Reader(self, context).read()


class _Reader:
    def __init__(self, syntax: MarkerParser, context: StreamParser) -> None:
        self._thought = thought = context.chat_format.thought
        self._context = context
        self._read_calls = syntax.read_calls
        self._openers = syntax.openers if context.tools else ()
        self._first = syntax.first if context.tools else None
        self._text_open, self._text_close = syntax.around_text
        self._is_text_open = False
        opens, closes = (thought.opens, thought.closes) if thought is not None else ((), ())
        own = (*self._openers, *opens, *closes, *filter(None, syntax.around_text))
        hidden = (token for token in context.control_tokens if token not in own)
        self._ignored = (*syntax.ignored, *hidden)
        self._markers = marker_set(*own, *self._ignored)

    def read(self) -> Steps[None]:
        context = self._context
        marker: str | None = None
        if context.starts_in_thought:
            marker = yield from self._read_thought("")
        while True:
            if marker is None:
                if self._first is not None and not context.out.has_text:
                    yield from self._read_unmarked(self._first)
                marker = yield from context.stream.read_until(self._markers, context.out.text)
            if marker is None:
                return
            marker = yield from self._at_marker(marker)

    def _read_unmarked(self, first: CallParser) -> Steps[None]:
        """Read calls without a marker, if any come next."""
        stream = self._context.stream
        stream.record()
        yield from stream.skip_space()
        yield from first(self._context, "")
        self._context.release()

    def _at_marker(self, marker: str) -> Steps[str | None]:
        """Read the span that `marker` begins. Returns the marker that ended it, if that one begins another span."""
        context, thought = self._context, self._thought
        if thought is not None and marker in thought.opens:
            if thought.anywhere or not context.out.has_text:
                return (yield from self._read_thought(marker))
            self._show(marker)
        elif marker in self._openers:
            context.stream.record(marker)
            yield from self._read_calls(context, marker)
        elif marker == self._text_open and not (context.out.has_text or self._is_text_open):
            self._is_text_open = True
        elif marker == self._text_close and self._is_text_open:
            self._is_text_open = False
        elif marker in (self._text_open, self._text_close):
            context.out.text(marker)
        elif marker not in self._ignored:
            # A closing marker alone: before any text it closes an empty thought, later it is text.
            if context.out.has_text or not context.split_thoughts:
                self._show(marker)
            else:
                context.out.close_thought()
        return None

    def _show(self, marker: str) -> None:
        """A marker of a thought where none is read: text, unless it is a control token."""
        if marker not in self._context.control_tokens or not self._context.split_thoughts:
            self._context.out.text(marker)

    def _read_thought(self, opener: str) -> Steps[str | None]:
        """Read a thought after its opening marker. Returns the marker that ended it, unless it was a closing one."""
        context, thought = self._context, self._thought
        assert thought is not None
        split = context.split_thoughts
        if split:
            context.out.open_thought()
        else:
            context.out.text(opener)
        ends = tuple(end for end in thought.ends if end in self._openers or end in self._ignored)
        markers = marker_set(*thought.closes, *ends, *self._ignored)
        while True:
            marker = yield from context.stream.read_until(markers, context.out.text)
            if marker is None:
                return None
            if marker in ends or marker in thought.closes:
                break
        if split:
            context.out.close_thought()
        elif marker in thought.closes:
            context.out.text(marker)
        return marker if marker in ends else None


# Between calls and after the last one. Models sometimes close a bracket too many.
_BETWEEN: Final = re.compile(r"[\s,;}\]]*")
_MAX_NAME: Final = 256
_FENCE: Final = "```json"
_FENCE_END: Final = "```"


class JsonCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the objects.

    name_is_key: `{"NAME": ARGUMENTS}`; the key settings are unused. known_only: an object that names no tool of the
    request is text; for calls without a marker, which could be any JSON. not_calls: names that mean "no call".
    closers: markers that end the calls; without any, the first text that is not a call ends them.
    """

    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    other_keys: tuple[str, ...] = ("id", "type", "function", "tool_call_id")
    name_is_key: bool = False
    known_only: bool = False
    not_calls: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.name_keys, *self.argument_keys, *self.other_keys)

    def __call__(self, context: StreamParser, marker: str) -> Steps[None]:
        stream = context.stream
        yield from stream.skip_space()
        # Small models put the objects between the markers into a block of Markdown.
        fence = (yield from stream.accept(_FENCE)) if self.closers else None
        yield from stream.skip_space()
        in_array = marker.endswith("[") or (yield from stream.accept("[")) is not None
        yield from stream.skip_space()
        any_call = False
        while (yield from stream.peek(1)) == "{":
            call = _Call(context, self)
            if not (yield from call.read()):
                context.release(call.begun_name if self.known_only else "")
                return
            any_call = True
            stream.record()
            if in_array or self.closers:
                yield from stream.read_matching(_BETWEEN, discard)
            else:
                yield from stream.skip_space()
                yield from stream.accept(";")
                yield from stream.skip_space()
        if not any_call:
            context.release()
            return
        stream.stop_recording()
        if fence is not None:
            yield from stream.accept(_FENCE_END)
            yield from stream.skip_space()
        yield from stream.accept(*self.closers)
        yield from stream.skip_space()


class _Call:
    """Parses one object. If the name comes after the arguments, the arguments are held until then."""

    def __init__(self, context: StreamParser, syntax: JsonCalls) -> None:
        self._context = context
        self._syntax = syntax
        self._name: str | None = None
        self._held: str | None = None
        self._opened = False
        # Of a string that the end of the text cut off.
        self._begun_key = ""
        self._begun_name = ""

    def read(self) -> Steps[bool]:
        """Read the object. False if it is not a call: nothing is announced, and the recording is still in progress."""
        whole = yield from self._read_members()
        if not self._opened and whole and self._is_call():
            self._open()
            self._context.out.arguments(self._held if self._held is not None else "{}")
        if self._opened and not whole and self._syntax.closers:
            yield from self._context.pass_rest(self._syntax.closers)
        return self._opened or (whole and self._name in self._syntax.not_calls)

    @property
    def begun_name(self) -> str:
        """The name, or as much of it as the answer has. A key that calls do not have is no beginning of one."""
        if not any(key.startswith(self._begun_key) for key in self._syntax.keys):
            return self._begun_key
        return self._name or self._begun_name

    def _read_members(self, nested: bool = False) -> Steps[bool]:
        """Read from the opening bracket to the closing one. False if it is malformed or cannot be a call."""
        stream = self._context.stream
        yield from stream.take(1)
        while True:
            yield from stream.skip_space()
            if (yield from stream.accept("}")):
                return True
            key = yield from read_json_string(stream, self._begin_key)
            if key is None or not self._allows(key):
                return False
            self._begun_key = ""
            yield from stream.skip_space()
            if not (yield from stream.accept(":")):
                return False
            yield from stream.skip_space()
            if not (yield from self._read_value(key, nested)):
                return False
            yield from stream.skip_space()
            if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != "}":
                return False

    def _begin_key(self, text: str) -> None:
        self._begun_key = text[1:]

    def _begin_name(self, text: str) -> None:
        self._begun_name = text[1:]

    def _allows(self, key: str) -> bool:
        """Whether a call may have this key. Without a marker, an object with another key is not a call."""
        return self._syntax.name_is_key or not self._syntax.known_only or key in self._syntax.keys

    def _read_value(self, key: str, nested: bool) -> Steps[bool]:
        stream, syntax = self._context.stream, self._syntax
        if syntax.name_is_key:
            self._name = key
            return (yield from self._read_arguments())
        if key in syntax.name_keys:
            self._name = yield from read_json_string(stream, self._begin_name)
            return self._name is not None
        if key in syntax.argument_keys:
            return (yield from self._read_arguments())
        if key == "function" and not nested and (yield from stream.peek(1)) == "{":
            return (yield from self._read_members(nested=True))
        return (yield from copy_json(stream, discard))

    def _read_arguments(self) -> Steps[bool]:
        """Read the arguments: an object streams; a string that contains one, or null, is held until complete."""
        stream, out = self._context.stream, self._context.out
        if self._opened:
            return (yield from copy_json(stream, discard))
        streams = (yield from stream.peek(1)) not in ('"', "n")
        if streams and self._name is not None:
            if not self._is_call():
                return (yield from copy_json(stream, discard)) and self._name in self._syntax.not_calls
            self._open()
            return (yield from copy_json(stream, out.arguments))
        text = yield from read_json(stream)
        if text is None:
            return False
        self._held = _unwrapped(text)
        return True

    def _is_call(self) -> bool:
        name = self._name
        if not name or len(name) > _MAX_NAME or name in self._syntax.not_calls:
            return False
        return not self._syntax.known_only or name in self._context.tools

    def _open(self) -> None:
        assert self._name is not None
        if not self._opened:
            self._context.open_call(self._name)
        self._opened = True


def _unwrapped(text: str) -> str:
    if text == "null":
        return "{}"
    if text.startswith('"'):
        return json_string_value(text) or "{}"
    return text


class BareNameCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The literals around name and arguments; all are optional, except id_before.

    before: before the name. id_before: between the model's id of the call and the name. name: its first group is the
    tool's name. call_id: after the name, before the model's id of the call. arguments: before the arguments.
    fence: around the JSON, like those of a code block. closers: after the arguments.
    known_only: a call of an unknown tool is text; set it where the marker may also be ordinary text. or_json: the
    syntax of JSON calls in place of a name.
    """

    before: tuple[str, ...] = ()
    id_before: str | None = None
    name: re.Pattern[str] = re.compile(r"(.+)")
    call_id: str | None = None
    arguments: tuple[str, ...] = ()
    fence: tuple[str, str] | None = None
    closers: tuple[str, ...] = ()
    known_only: bool = False
    or_json: JsonCalls | None = None

    def __call__(self, context: StreamParser, marker: str) -> Steps[None]:
        stream = context.stream
        yield from stream.skip_space()
        if self.or_json is not None and (yield from stream.peek(1)) in ("{", "["):
            yield from self.or_json(context, marker)
            return
        head = yield from self._read_head(context)
        if head is None:
            context.release()
        else:
            yield from self._read_arguments(context, *head)

    def _read_head(self, context: StreamParser) -> Steps[tuple[str, str] | None]:
        """Read up to the arguments, and return the tool's name and the model's id; None if this is not a call."""
        stream = context.stream
        yield from stream.accept(*self.before)
        own_id = ""
        if self.id_before is not None:
            own_id = yield from stream.take_matching(NAME)
            yield from stream.accept(self.id_before)
        match = self.name.fullmatch((yield from stream.take_matching(NAME)))
        if match is None or (self.known_only and match.group(1) not in context.tools):
            return None
        yield from stream.skip_space()
        if self.call_id is not None and (yield from stream.accept(self.call_id)):
            own_id = yield from stream.take_matching(NAME)
        yield from stream.accept(*self.arguments)
        yield from stream.skip_space()
        if self.fence is not None and (yield from stream.accept(self.fence[0])):
            yield from stream.skip_space()
        # A name with more around it is an id.
        return match[1], own_id or (match[0] if match[0] != match[1] else "")

    def _read_arguments(self, context: StreamParser, name: str, own_id: str) -> Steps[None]:
        stream, out = context.stream, context.out
        if (yield from stream.peek(1)) != "{":
            if (yield from stream.accept(*self.closers)) is None:
                context.release()
                return
            context.open_call(name, own_id)
            out.arguments("{}")
            return
        context.open_call(name, own_id)
        if (yield from copy_json(stream, out.arguments)):
            yield from stream.skip_space()
            if self.fence is not None and (yield from stream.accept(self.fence[1])):
                yield from stream.skip_space()
            yield from stream.accept(*self.closers)
        else:
            yield from context.pass_rest(self.closers)
