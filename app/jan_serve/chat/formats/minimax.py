"""MiniMax M1 writes JSON objects, one a line; M2 writes invoke and parameter elements; M3 writes nested elements,
`<key>value</key>`, with a prefix before every tag.

Source: the models' chat templates.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from jan_serve.chat.call_layout import CallLayout, NestedTagArguments, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls
from jan_serve.chat.schema_types import STRING, item_schema, property_schema, types_of, value_to_json
from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import MarkerSet, marker_set

MAX_DEPTH: Final = 64
"""Deeper nesting is malformed. Reading recurses."""

ITEM: Final = "item"

_SPACE: Final = re.compile(r"\s*")
_GREATER: Final = marker_set(">")


class Element(msgspec.Struct, frozen=True):
    """The schema of a value to read. root: the schema that `$ref` points into. depth: nesting level."""

    schema: object
    root: object
    depth: int = 0

    def child(self, schema: object) -> Element:
        return Element(schema, self.root, self.depth + 1)


def copy_members(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read elements up to the tag `end`, passing them to `sink` as a JSON object. False if the tag does not come."""
    sink("{")
    members = ObjectWriter(sink)
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            sink("}")
            return True
        if not (yield from stream.accept(f"{prefix}<")):
            return False
        key: list[str] = []
        if (yield from stream.read_until(_GREATER, key.append)) is None:
            return False
        name = "".join(key)
        value = members.begin(f'"{json_escaped(name)}"')
        value(": ")
        child = element.child(property_schema(element.schema, element.root, name))
        if not (yield from _copy_value(stream, value, prefix, f"{prefix}</{name}>", child)):
            return False


def _copy_value(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    if element.depth > MAX_DEPTH:
        return False
    types = types_of(element.schema, element.root)
    if types == STRING:
        sink('"')
        # Not marker_set: tag names come from the answer, and would fill its cache.
        closed = yield from stream.read_until(
            MarkerSet((end,)), lambda text: sink(json_escaped(text)), cut_off=discard
        )
        if closed is not None:
            sink('"')
        return closed is not None
    pieces = [(yield from stream.take_matching(_SPACE))]
    if (yield from stream.accept(f"{prefix}<{ITEM}>")):
        return (yield from _copy_items(stream, sink, prefix, end, element))
    if (yield from stream.accept(end)):
        sink(_empty_json("".join(pieces), types))
        return True
    if (yield from stream.is_next(f"{prefix}<")):
        return (yield from copy_members(stream, sink, prefix, end, element))
    if (yield from stream.read_until(MarkerSet((end,)), pieces.append)) is None:
        return False
    sink(value_to_json("".join(pieces), types))
    return True


def _copy_items(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read the items of an array, after the opening tag of the first one."""
    item = element.child(item_schema(element.schema, element.root))
    sink("[")
    while True:
        if not (yield from _copy_value(stream, sink, prefix, f"{prefix}</{ITEM}>", item)):
            return False
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            sink("]")
            return True
        if not (yield from stream.accept(f"{prefix}<{ITEM}>")):
            return False
        sink(", ")


def _empty_json(space: str, types: frozenset[str]) -> str:
    """An element that holds nothing, or only white space."""
    if "string" in types:
        return f'"{json_escaped(space)}"'
    return "[]" if "array" in types else "{}"


_M1_OPEN = "<tool_calls>"
_M1_CLOSE = "</tool_calls>"

MINIMAX_M1 = ChatFormat(
    name="minimax-m1",
    signature=Signature(all_of=(_M1_OPEN, "<beginning_of_sentence>")),
    parse=marker_parser(JsonCalls(closers=(_M1_CLOSE,)), _M1_OPEN),
    calls=CallLayout(
        opening=_M1_OPEN + "\n",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}\n"),
        closing=_M1_CLOSE,
        triggers=(_M1_OPEN,),
    ),
)

_M2_OPEN = "<minimax:tool_call>"
_M2_CLOSE = "</minimax:tool_call>"

MINIMAX_M2 = ChatFormat(
    name="minimax-m2",
    signature=Signature(all_of=(_M2_OPEN,)),
    parse=marker_parser(
        TaggedCalls(
            call_opens=('<invoke name="',),
            name_end=">",
            argument_open='<parameter name="',
            key_end='"',
            value_open=">",
            value_close="</parameter>",
            call_close="</invoke>",
            closers=(_M2_CLOSE,),
        ),
        _M2_OPEN,
    ),
    calls=CallLayout(
        opening=_M2_OPEN + "\n",
        call=('<invoke name="', Slot.NAME, '">\n', Slot.ARGUMENTS, "</invoke>\n"),
        closing=_M2_CLOSE,
        arguments=TaggedArguments(
            argument=('<parameter name="', Slot.KEY, '">', Slot.VALUE, "</parameter>\n")
        ),
        triggers=(_M2_OPEN,),
    ),
    thought=Thought(ends=(_M2_OPEN,)),
    special_tokens=(_M2_OPEN, _M2_CLOSE, "<think>", "</think>"),
)

PREFIX = "]<]minimax[>["
_M3_OPEN = PREFIX + "<tool_call>"
_M3_CLOSE = PREFIX + "</tool_call>"
_INVOKE = PREFIX + '<invoke name="'
_INVOKE_END = PREFIX + "</invoke>"
_NAME: Final = re.compile(r"[^\s\"<>]*")


def _read_m3(context: ParseContext, marker: str) -> Steps[None]:
    stream = context.stream
    any_call = False
    yield from stream.skip_space()
    while (yield from stream.accept(_INVOKE)):
        name = yield from stream.take_matching(_NAME)
        if not name or not (yield from stream.accept('">')):
            context.release()
            return
        context.open_call(name)
        any_call = True
        tool = context.tools.get(name)
        schema = tool.parameters if tool is not None else {}
        element = Element(schema, schema)
        if not (yield from copy_members(stream, context.out.arguments, PREFIX, _INVOKE_END, element)):
            yield from context.pass_rest((_M3_CLOSE,))
            return
        stream.record()
        yield from stream.skip_space()
    if not any_call:
        context.release()
        return
    stream.stop_recording()
    yield from stream.accept(_M3_CLOSE)


MINIMAX_M3 = ChatFormat(
    name="minimax-m3",
    signature=Signature(all_of=(PREFIX,)),
    parse=marker_parser(_read_m3, _M3_OPEN),
    calls=CallLayout(
        opening=_M3_OPEN + "\n",
        call=(_INVOKE, Slot.NAME, '">', Slot.ARGUMENTS, _INVOKE_END + "\n"),
        closing=_M3_CLOSE,
        arguments=NestedTagArguments(PREFIX),
        triggers=(_M3_OPEN,),
    ),
    thought=Thought(opens=("<mm:think>",), closes=("</mm:think>",), ends=(_M3_OPEN,)),
    special_tokens=(PREFIX, "<tool_call>", "</tool_call>", "<mm:think>", "</mm:think>"),
)
