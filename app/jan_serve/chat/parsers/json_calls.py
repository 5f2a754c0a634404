"""Reads calls that are JSON objects with a name and arguments: alone, one after another, or in an array."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jan_serve.chat.formats.format import Reading
from jan_serve.chat.json_stream import copy_json, json_string_value, read_json, read_json_string
from jan_serve.chat.parsers.marked import CallsReader
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.text.markers import marker_set

# Between calls and behind the last one. Models close a bracket too many now and then.
_BETWEEN: Final = re.compile(r"[\s,;}\]]*")
_MAX_NAME: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCalls:
    """What the objects look like.

    name_is_key: `{"NAME": ARGUMENTS}`, and the keys are not looked at. known_only: an object that names no tool of the
    request is text; for calls without a marker, which could be any JSON. not_calls: names that mean "no call".
    closers: what ends the calls; without any, the first thing that is no call.
    """

    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    other_keys: tuple[str, ...] = ("id", "type", "function", "tool_call_id")
    name_is_key: bool = False
    known_only: bool = False
    not_calls: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()

    def reader(self) -> CallsReader:
        """The function that reads them."""

        def read(reading: Reading, marker: str) -> Steps[None]:
            return _read_calls(reading, self, in_array=marker.endswith("["))

        return read


def _read_calls(reading: Reading, form: JsonCalls, in_array: bool) -> Steps[None]:
    stream = reading.stream
    yield from stream.skip_space()
    in_array = in_array or (yield from stream.accept("[")) is not None
    yield from stream.skip_space()
    any_call = False
    while (yield from stream.peek(1)) == "{":
        if not (yield from _Call(reading, form).read()):
            reading.release()
            return
        any_call = True
        stream.record()
        if in_array or form.closers:
            yield from stream.run(_BETWEEN, discard)
        else:
            yield from stream.skip_space()
            yield from stream.accept(";")
            yield from stream.skip_space()
    if not any_call:
        reading.release()
        return
    stream.recorded()
    yield from stream.accept(*form.closers)
    yield from stream.skip_space()


class _Call:
    """One object being read. The name may come after the arguments, which are then held."""

    def __init__(self, reading: Reading, form: JsonCalls) -> None:
        self._reading = reading
        self._form = form
        self._name: str | None = None
        self._held: str | None = None
        self._opened = False

    def read(self) -> Steps[bool]:
        """Read the object. False where it is not a call: then nothing was announced, and a recording goes on."""
        whole = yield from self._read_members()
        if not self._opened and whole and self._is_call():
            self._open()
            self._reading.out.arguments(self._held if self._held is not None else "{}")
        if self._opened and not whole:
            yield from self._pass_rest()
        return self._opened or (whole and self._name in self._form.not_calls)

    def _read_members(self, nested: bool = False) -> Steps[bool]:
        """From the opening bracket to the closing one; False where something else than an object comes."""
        stream = self._reading.stream
        yield from stream.take(1)
        while True:
            yield from stream.skip_space()
            if (yield from stream.accept("}")):
                return True
            key = yield from read_json_string(stream)
            if key is None or not self._takes(key):
                return False
            yield from stream.skip_space()
            if not (yield from stream.accept(":")):
                return False
            yield from stream.skip_space()
            if not (yield from self._read_value(key, nested)):
                return False
            yield from stream.skip_space()
            if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != "}":
                return False

    def _takes(self, key: str) -> bool:
        """Whether a call may have this key. Where calls have no marker, another one tells that this is none."""
        form = self._form
        if form.name_is_key or not form.known_only:
            return True
        return key in form.name_keys or key in form.argument_keys or key in form.other_keys

    def _read_value(self, key: str, nested: bool) -> Steps[bool]:
        stream, form = self._reading.stream, self._form
        if form.name_is_key:
            self._name = key
            return (yield from self._read_arguments())
        if key in form.name_keys:
            self._name = yield from read_json_string(stream)
            return self._name is not None
        if key in form.argument_keys:
            return (yield from self._read_arguments())
        if key == "function" and not nested and (yield from stream.peek(1)) == "{":
            return (yield from self._read_members(nested=True))
        return (yield from copy_json(stream, discard))

    def _read_arguments(self) -> Steps[bool]:
        """The arguments: an object as it comes; a string that holds one, or null, when it is whole."""
        stream, out = self._reading.stream, self._reading.out
        if self._opened:
            return (yield from copy_json(stream, discard))
        as_they_come = (yield from stream.peek(1)) not in ('"', "n")
        if as_they_come and self._name is not None:
            if not self._is_call():
                return (yield from copy_json(stream, discard)) and self._name in self._form.not_calls
            self._open()
            return (yield from copy_json(stream, out.arguments))
        text = yield from read_json(stream)
        if text is None:
            return False
        self._held = _unwrapped(text)
        return True

    def _is_call(self) -> bool:
        name = self._name
        if not name or len(name) > _MAX_NAME or name in self._form.not_calls:
            return False
        return not self._form.known_only or name in self._reading.tools

    def _open(self) -> None:
        assert self._name is not None
        if not self._opened:
            self._reading.open_call(self._name)
        self._opened = True

    def _pass_rest(self) -> Steps[None]:
        """What follows broken JSON, up to the end of the calls, is passed on: whoever parses it sees what was wrong."""
        closers = self._form.closers
        if closers and not self._reading.stream.at_end:
            yield from self._reading.stream.until(marker_set(*closers), self._reading.out.arguments)


def _unwrapped(text: str) -> str:
    if text == "null":
        return "{}"
    if text.startswith('"'):
        return json_string_value(text) or "{}"
    return text
