"""Parses calls with each argument between tags, and converts them to JSON as they arrive.

The text of a string argument streams; any other value is held until complete, since its type is unknown before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from jan_serve.chat.call_layout import TaggedArguments
from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.parsers.marked_calls import JsonCalls
from jan_serve.chat.schema_types import STRING, property_schema, types_of, value_to_json
from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import MarkerSet, marker_set

_NAME: Final = re.compile(r"[^\s\"'<>=]*")
_ATTRIBUTES: Final = re.compile(r"[\s\w=\"'.:\-]*")
_STRING_ATTRIBUTE: Final = re.compile(r'\bstring="(true|false)"|\btype="(\w+)"')


class TaggedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The tags. White space between them is ignored.

    call_opens: begin a call; empty if the marker already read does. name_end: ends the name and its attributes; "" if
    nothing marks the end. key_end, value_open: between an argument's name and its value, with attributes between the
    two; `string="…"` or `type="…"` declares whether the value is a string. The layout's `pad` is no part of a value.
    section: what opens and closes a value that may hold value_close. closers: may follow the last call. or_json: the
    syntax of JSON calls in place of tags.
    """

    call_opens: tuple[str, ...] = ()
    name_end: str = ">"
    argument_open: str
    key_end: str = '"'
    value_open: str = ">"
    value_close: str
    call_close: str
    closers: tuple[str, ...] = ()
    section: tuple[str, str] | None = None
    or_json: JsonCalls | None = None

    @property
    def endings(self) -> tuple[str, ...]:
        """What ends the calls, on lines of its own: it also ends a value whose closing tag the model left out."""
        return tuple(f"\n{self.call_close}{gap}{closer}" for closer in self.closers for gap in ("\n", ""))

    def __call__(self, context: StreamParser, marker: str) -> Steps[None]:
        stream = context.stream
        yield from stream.skip_space()
        if self.or_json is not None and (yield from stream.peek(1)) == "{":
            yield from self.or_json(context, marker)
            return
        opened = not self.call_opens or marker in self.call_opens
        any_call = False
        while opened or (yield from stream.accept(*self.call_opens)):
            if not (yield from self._read_call(context)):
                context.release()
                return
            any_call, opened = True, False
            stream.record()
            yield from stream.skip_space()
        if not any_call:
            context.release()
            return
        stream.stop_recording()
        yield from stream.accept(*self.closers)

    def _read_call(self, context: StreamParser) -> Steps[bool]:
        """Read a call after its opening tag. False if it is not a call; nothing is announced then."""
        stream, out = context.stream, context.out
        name = yield from stream.take_matching(_NAME)
        if self.name_end:
            yield from stream.read_matching(_ATTRIBUTES, discard)
            if not (yield from stream.accept(self.name_end)):
                return False
        yield from stream.skip_space()
        argument = yield from stream.accept(self.argument_open)
        if not name or not (argument or (yield from self._accept_end(context))):
            return False
        context.open_call(name)
        out.arguments("{")
        if argument is None:
            out.arguments("}")
            return True
        tool = context.tools.get(name)
        schema: Mapping[str, Any] = tool.parameters if tool is not None else {}
        members = ObjectWriter(out.arguments)
        end, left = argument, self._openings(schema)
        while end is not None:
            end = yield from self._read_argument(context, schema, members, left, end)
            if end in self.endings:
                out.arguments("}")
                return True
            if end == self.value_close:
                yield from stream.skip_space()
                end = yield from stream.accept(self.argument_open)
                if end is None:
                    if (yield from self._accept_end(context)) or not stream.at_end:
                        out.arguments("}")
                    return True
        return True

    def _openings(self, schema: Mapping[str, Any]) -> dict[str, str]:
        """The names of a tool's arguments, by what begins them on a line of its own.

        There it ends the value before it too: models leave out a closing tag.
        """
        properties: object = schema.get("properties")
        names = cast(dict[str, object], properties) if isinstance(properties, dict) else {}
        return {f"\n{self.argument_open}{name}{self.key_end}": name for name in names}

    def _accept_end(self, context: StreamParser) -> Steps[bool]:
        """Read the end of a call. Models omit the tag if a closer follows; the closer is not read."""
        stream = context.stream
        if (yield from stream.accept(self.call_close)):
            return True
        for closer in self.closers:
            if (yield from stream.is_next(closer)):
                return True
        return False

    def _read_argument(
        self,
        context: StreamParser,
        schema: Mapping[str, Any],
        members: ObjectWriter,
        left: dict[str, str],
        opening: str,
    ) -> Steps[str | None]:
        """Read an argument after its opening tag. Returns its closing tag, or the one of `left` or of the endings that
        ends it; None if it does not end. left: the openings of arguments that are not read yet; this one is taken out.
        """
        stream = context.stream
        name = left.get(opening)
        if name is None:
            key: list[str] = []
            if (yield from stream.read_until(marker_set(self.key_end), key.append)) is None:
                return None
            name = "".join(key)
        left.pop(f"\n{self.argument_open}{name}{self.key_end}", None)
        value = members.begin(f'"{json_escaped(name)}"')
        value(": ")
        attributes = ""
        if self.value_open:
            attributes = yield from stream.take_matching(_ATTRIBUTES)
            if not (yield from stream.accept(self.value_open)):
                # The tags are broken: the rest passes unchanged, or is dropped with a repeated name. The object stays
                # open, so the arguments are not valid JSON.
                if not stream.at_end:
                    value(attributes)
                    yield from stream.read_until(marker_set(self.call_close, *self.closers), value)
                return None
        types = _declared_types(attributes)
        if types is None:
            types = types_of(property_schema(schema, schema, name), schema)
        layout = context.chat_format.calls.arguments
        pad = layout.pad if isinstance(layout, TaggedArguments) else ""
        if pad:
            yield from stream.accept(pad)
        ends = MarkerSet((self.value_close, *left, *self.endings))
        return (yield from self._read_value(stream, value, types, pad, ends))

    def _read_value(
        self, stream: TextStream, sink: Sink, types: frozenset[str], pad: str, ends: MarkerSet
    ) -> Steps[str | None]:
        """Read a value, and return what ended it."""
        opening, closing = self.section or ("", "")
        if opening and (yield from stream.accept(opening)):
            # The section may contain the closing tag, so its end is searched first.
            pieces: list[str] = []
            if (yield from stream.read_until(marker_set(closing), pieces.append)) is None:
                return None
            sink(value_to_json("".join(pieces), types))
            return (yield from stream.read_until(ends, pieces.append))
        if types != STRING:
            pieces = []
            end = yield from stream.read_until(ends, pieces.append)
            if end is not None:
                sink(value_to_json("".join(pieces).removesuffix(pad), types))
            return end
        sink('"')
        string = _StringValue(sink, pad)
        end = yield from stream.read_until(ends, string.add, cut_off=discard)
        if end is not None:
            sink('"')
        return end


def _declared_types(attributes: str) -> frozenset[str] | None:
    match = _STRING_ATTRIBUTE.search(attributes)
    if match is None:
        return None
    if match.group(1) == "true" or match.group(2) == "string":
        return STRING
    return frozenset({"number", "integer", "boolean", "null", "object", "array"})


class _StringValue:
    """A sink that escapes text for JSON. Holds back a `pad` at the end, which may belong to the closing tag."""

    def __init__(self, sink: Sink, pad: str) -> None:
        self._sink = sink
        self._pad = pad
        self._held = ""

    def add(self, text: str) -> None:
        text = self._held + text
        self._held = self._pad if self._pad and text.endswith(self._pad) else ""
        self._sink(json_escaped(text[: len(text) - len(self._held)]))
