"""Parses calls that are a bare name and the arguments as JSON, with markers around them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from jan_serve.chat.chat_format import ParseContext
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.text.markers import marker_set

_NAME: Final = re.compile(r"[\w.\-:/]*")


class BareNameCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The literals around name and arguments; all are optional, except id_before.

    before: before the name. id_before: between the model's id of the call and the name. name: its first group is the
    tool's name. call_id: after the name, before the model's id of the call. arguments: before the arguments.
    fence: around the JSON, like those of a code block. closers: after the arguments.
    known_only: a call of an unknown tool is text. or_json: the syntax of JSON calls in place of a name.
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

    def __call__(self, context: ParseContext, marker: str) -> Steps[None]:
        stream = context.stream
        yield from stream.skip_space()
        if self.or_json is not None and (yield from stream.peek(1)) in ("{", "["):
            yield from self.or_json(context, marker)
            return
        name = yield from _read_head(context, self)
        if name is None:
            context.release()
            return
        yield from _read_arguments(context, self, name)


def _read_head(context: ParseContext, syntax: BareNameCalls) -> Steps[str | None]:
    """Read up to the arguments, and return the tool's name; None if this is not a call."""
    stream = context.stream
    yield from stream.accept(*syntax.before)
    if syntax.id_before is not None:
        yield from stream.read_matching(_NAME, discard)
        yield from stream.accept(syntax.id_before)
    pieces: list[str] = []
    yield from stream.read_matching(_NAME, pieces.append)
    match = syntax.name.fullmatch("".join(pieces))
    if match is None or (syntax.known_only and match.group(1) not in context.tools):
        return None
    yield from stream.skip_space()
    if syntax.call_id is not None and (yield from stream.accept(syntax.call_id)):
        yield from stream.read_matching(_NAME, discard)
    yield from stream.accept(*syntax.arguments)
    yield from stream.skip_space()
    if syntax.fence is not None and (yield from stream.accept(syntax.fence[0])):
        yield from stream.skip_space()
    return match.group(1)


def _read_arguments(context: ParseContext, syntax: BareNameCalls, name: str) -> Steps[None]:
    stream, out = context.stream, context.out
    if (yield from stream.peek(1)) != "{":
        if (yield from stream.accept(*syntax.closers)) is None:
            context.release()
            return
        context.open_call(name)
        out.arguments("{}")
        return
    context.open_call(name)
    if (yield from copy_json(stream, out.arguments)):
        yield from stream.skip_space()
        if syntax.fence is not None and (yield from stream.accept(syntax.fence[1])):
            yield from stream.skip_space()
        yield from stream.accept(*syntax.closers)
    elif syntax.closers and not stream.at_end:
        # Broken JSON passes unchanged, so that clients can see the error.
        yield from stream.read_until(marker_set(*syntax.closers), out.arguments)
