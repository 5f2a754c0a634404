"""Parses calls in Python syntax: `[name(key='value', other=[1, 2]), …]`. Nothing is evaluated."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from jan_serve.chat.chat_format import ParseContext
from jan_serve.chat.json_stream import json_escaped
from jan_serve.chat.literals import copy_literal
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"[^\s=,:()\[\]{}'\"<]*")


class PythonCalls(msgspec.Struct, frozen=True, kw_only=True):
    """closers: end the calls. suffix: an optional suffix of the name. known_only: a call of an unknown tool is text.

    or_json: the syntax of JSON calls in place of Python calls.
    """

    closers: tuple[str, ...] = ()
    suffix: str = ""
    known_only: bool = False
    or_json: JsonCalls | None = None

    def __call__(self, context: ParseContext, marker: str) -> Steps[None]:
        return _read_calls(context, self, marker)


def _read_calls(context: ParseContext, syntax: PythonCalls, marker: str) -> Steps[None]:
    stream = context.stream
    yield from stream.skip_space()
    in_list = (yield from stream.accept("[")) is not None
    yield from stream.skip_space()
    if syntax.or_json is not None and (yield from stream.peek(1)) == "{":
        yield from syntax.or_json(context, "[" if in_list else marker)
        return
    any_call = False
    while not any_call or (in_list and (yield from stream.accept(","))):
        yield from stream.skip_space()
        if not (yield from _read_call(context, syntax)):
            context.release()
            return
        any_call = True
        stream.record()
        yield from stream.skip_space()
    if in_list:
        yield from stream.accept("]")
        yield from stream.skip_space()
    stream.stop_recording()
    yield from stream.accept(*syntax.closers)


def _read_call(context: ParseContext, syntax: PythonCalls) -> Steps[bool]:
    """Read `name(…)`. False if it is not a call; nothing is announced then."""
    stream, out = context.stream, context.out
    pieces: list[str] = []
    yield from stream.read_matching(_NAME, pieces.append)
    name = "".join(pieces)
    if syntax.suffix:
        name = name.removesuffix(syntax.suffix)
    if not name or (syntax.known_only and name not in context.tools) or not (yield from stream.accept("(")):
        return False
    context.open_call(name)
    out.arguments("{")
    if (yield from _read_arguments(context)):
        out.arguments("}")
    elif syntax.closers and not stream.at_end:
        yield from stream.read_until(marker_set(*syntax.closers), out.arguments)
    return True


def _read_arguments(context: ParseContext) -> Steps[bool]:
    """Read keyword arguments up to the closing bracket. False if they are malformed or the text ends."""
    stream, out = context.stream, context.out
    first = True
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(")")):
            return True
        key: list[str] = []
        yield from stream.read_matching(_KEY, key.append)
        yield from stream.skip_space()
        if not key or not (yield from stream.accept("=")):
            if not stream.at_end:
                out.arguments("".join(key))
            return False
        yield from stream.skip_space()
        out.arguments(f'{"" if first else ", "}"{json_escaped("".join(key))}": ')
        first = False
        if not (yield from copy_literal(stream, out.arguments)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != ")":
            return False
