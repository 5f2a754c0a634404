"""Reads calls whose arguments stand between tags, one by one, and turns them into JSON as they come.

The text of a string argument is passed on while it comes; another value when it is whole, as only then its type is
known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jan_serve.chat.formats.format import Reading
from jan_serve.chat.json_stream import json_escaped
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import CallsReader
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.chat.tool_types import STRING, property_schema, types_of, value_to_json
from jan_serve.text.markers import marker_set

_NAME: Final = re.compile(r"[^\s\"'<>=]*")
_ATTRIBUTES: Final = re.compile(r"[\s\w=\"'.:\-]*")
_STRING_ATTRIBUTE: Final = re.compile(r'\bstring="(true|false)"|\btype="(\w+)"')
_CDATA: Final = ("<![CDATA[", "]]>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCalls:
    """The tags. Between them white space is free.

    call_opens: what a call begins with; empty where that is the marker that was already read. name_end: what ends the
    name, with attributes before it; "" where the name just ends. key_end, value_open: what stands between an argument's
    name and its value; what comes between the two are attributes, of which `string="…"` and `type="…"` say whether the
    value is a string. pad: stands before and behind a value, at most once, and belongs to the tags.
    closers: what may stand behind the last call. or_json: how to read a JSON object in place of tags.
    """

    call_opens: tuple[str, ...] = ()
    name_end: str
    argument_open: str
    key_end: str
    value_open: str = ""
    value_close: str
    call_close: str
    closers: tuple[str, ...] = ()
    pad: str = ""
    cdata: bool = False
    or_json: JsonCalls | None = None

    def reader(self) -> CallsReader:
        """The function that reads them."""

        def read(reading: Reading, marker: str) -> Steps[None]:
            return _read_calls(reading, self, marker)

        return read


def _read_calls(reading: Reading, form: TaggedCalls, marker: str) -> Steps[None]:
    stream = reading.stream
    yield from stream.skip_space()
    if form.or_json is not None and (yield from stream.peek(1)) == "{":
        yield from form.or_json.reader()(reading, marker)
        return
    opened = not form.call_opens or marker in form.call_opens
    any_call = False
    while opened or (yield from stream.accept(*form.call_opens)):
        if not (yield from _read_call(reading, form)):
            reading.release()
            return
        any_call, opened = True, False
        stream.record()
        yield from stream.skip_space()
    if not any_call:
        reading.release()
        return
    stream.recorded()
    yield from stream.accept(*form.closers)


def _read_call(reading: Reading, form: TaggedCalls) -> Steps[bool]:
    """A call behind its opening tag. False where it is none: then nothing was announced."""
    stream, out = reading.stream, reading.out
    pieces: list[str] = []
    yield from stream.run(_NAME, pieces.append)
    name = "".join(pieces)
    if form.name_end:
        yield from stream.run(_ATTRIBUTES, pieces.append)
        if not (yield from stream.accept(form.name_end)):
            return False
    yield from stream.skip_space()
    argument = yield from stream.accept(form.argument_open)
    if not name or not (argument or (yield from _accept_end(reading, form))):
        return False
    reading.open_call(name)
    out.arguments("{")
    if argument is None:
        out.arguments("}")
        return True
    tool = reading.tools.get(name)
    schema: Mapping[str, Any] = tool.parameters if tool is not None else {}
    while (yield from _read_argument(reading, form, schema)):
        yield from stream.skip_space()
        if (yield from stream.accept(form.argument_open)):
            out.arguments(", ")
        elif (yield from _accept_end(reading, form)) or not stream.at_end:
            out.arguments("}")
            return True
        else:
            return True
    return True


def _accept_end(reading: Reading, form: TaggedCalls) -> Steps[bool]:
    """The end of a call; models forget the tag when another closes right behind it, which is then left to be read."""
    stream = reading.stream
    if (yield from stream.accept(form.call_close)):
        return True
    for closer in form.closers:
        if (yield from stream.is_at(closer)):
            return True
    return False


def _read_argument(reading: Reading, form: TaggedCalls, schema: Mapping[str, Any]) -> Steps[bool]:
    """An argument behind its opening tag, up to its closing one. False where it does not come to its end."""
    stream, out = reading.stream, reading.out
    key: list[str] = []
    if (yield from stream.until(marker_set(form.key_end), key.append)) is None:
        return False
    name = "".join(key)
    out.arguments(f'"{json_escaped(name)}": ')
    attributes: list[str] = []
    if form.value_open:
        yield from stream.run(_ATTRIBUTES, attributes.append)
        if not (yield from stream.accept(form.value_open)):
            # The tags are broken: what follows is passed on as it is, which no reader takes for arguments.
            if not stream.at_end:
                out.arguments("".join(attributes))
                yield from stream.until(marker_set(form.call_close, *form.closers), out.arguments)
            return False
    types = _declared_types("".join(attributes))
    if types is None:
        types = types_of(property_schema(schema, schema, name), schema)
    if form.pad:
        yield from stream.accept(form.pad)
    return (yield from _read_value(reading, form, types))


def _declared_types(attributes: str) -> frozenset[str] | None:
    match = _STRING_ATTRIBUTE.search(attributes)
    if match is None:
        return None
    if match.group(1) == "true" or match.group(2) == "string":
        return STRING
    return frozenset({"number", "integer", "boolean", "null", "object", "array"})


def _read_value(reading: Reading, form: TaggedCalls, types: frozenset[str]) -> Steps[bool]:
    stream, out = reading.stream, reading.out
    close = marker_set(form.value_close)
    if form.cdata and (yield from stream.accept(_CDATA[0])):
        # The closing tag may stand inside of the section, so its end is looked for first.
        pieces: list[str] = []
        if (yield from stream.until(marker_set(_CDATA[1]), pieces.append)) is None:
            return False
        out.arguments(value_to_json("".join(pieces), types))
        return (yield from stream.until(close, pieces.append)) is not None
    if types != STRING:
        pieces = []
        whole = yield from stream.until(close, pieces.append)
        if whole is not None:
            out.arguments(value_to_json("".join(pieces).removesuffix(form.pad), types))
        return whole is not None
    out.arguments('"')
    string = _StringValue(reading, form.pad)
    if (yield from stream.until(close, string.add, cut_off=discard)) is None:
        return False
    out.arguments('"')
    return True


class _StringValue:
    """A sink that escapes text for JSON, and holds back a `pad` at the end, as that may belong to the closing tag."""

    def __init__(self, reading: Reading, pad: str) -> None:
        self._out = reading.out
        self._pad = pad
        self._held = ""

    def add(self, text: str) -> None:
        text = self._held + text
        self._held = self._pad if self._pad and text.endswith(self._pad) else ""
        self._out.arguments(json_escaped(text[: len(text) - len(self._held)]))
