"""Calls in a notation with a reader of its own: `call:NAME{key:value}` of Gemma 4 and FunctionGemma, with texts between
quotes of their own, and the nested elements of MiniMax M3, `<key>value</key>`, with a prefix before every tag.

Source: the models' chat templates and Google's prompt formatting pages. A thought of Gemma 4 is a channel, and an
answer may have several. The model sometimes writes a closing marker alone, which is ignored. Earlier Gemmas have no
tools.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from jan_serve.chat.call_layout import CallLayout, GemmaArguments, NestedTagArguments, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, StreamParser, Thought
from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.literals import GEMMA, copy_literal
from jan_serve.chat.parsers.marked_calls import CallParser, MarkerParser
from jan_serve.chat.schema_types import STRING, item_schema, property_schema, types_of, value_to_json
from jan_serve.chat.text_stream import NAME, Sink, Steps, TextStream, discard
from jan_serve.text.markers import MarkerSet, marker_set


def _reader(close: str, quote: str) -> CallParser:
    syntax = replace(GEMMA, raw_quote=quote)

    def read(context: StreamParser, marker: str) -> Steps[None]:
        del marker
        stream = context.stream
        yield from stream.skip_space()
        called = yield from stream.accept("call:")
        name = yield from stream.take_matching(NAME)
        if not called or not name or (yield from stream.peek(1)) != "{":
            context.release()
            return
        context.open_call(name)
        if (yield from copy_literal(stream, context.out.arguments, syntax)):
            yield from stream.skip_space()
            yield from stream.accept(close)
        else:
            yield from context.pass_rest((close,))

    return read


def _calls(opening: str, close: str, quote: str) -> CallLayout:
    return CallLayout(
        call=parts(f"{opening}call:$NAME$ARGUMENTS{close}"),
        arguments=GemmaArguments(quote),
        triggers=(opening,),
    )


_GEMMA4 = ("<|tool_call>", "<tool_call|>", '<|"|>')
_THOUGHT_CLOSE = "<channel|>"

GEMMA4 = ChatFormat(
    name="gemma4",
    signature=Signature(all_of=(_GEMMA4[0], "call:")),
    parse=MarkerParser(_reader(*_GEMMA4[1:]), _GEMMA4[:1], ignored=(_THOUGHT_CLOSE,)),
    calls=_calls(*_GEMMA4),
    thought=Thought(
        opens=("<|channel>thought\n",), closes=(_THOUGHT_CLOSE,), ends=_GEMMA4[:1], anywhere=True
    ),
    special_tokens=(*_GEMMA4, "<|channel>", _THOUGHT_CLOSE),
)

_FUNCTION_GEMMA = ("<start_function_call>", "<end_function_call>", "<escape>")
_RESPONSE = "<start_function_response>"

FUNCTION_GEMMA = ChatFormat(
    name="function-gemma",
    signature=Signature(all_of=(_FUNCTION_GEMMA[0], "call:")),
    parse=MarkerParser(_reader(*_FUNCTION_GEMMA[1:]), _FUNCTION_GEMMA[:1], ignored=(_RESPONSE,)),
    calls=_calls(*_FUNCTION_GEMMA),
    thought=None,
    special_tokens=(*_FUNCTION_GEMMA, _RESPONSE),
)

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


_PREFIX = "]<]minimax[>["
_M3 = (_PREFIX + "<tool_call>", _PREFIX + "</tool_call>")
_INVOKE, _INVOKE_END = _PREFIX + '<invoke name="', _PREFIX + "</invoke>"
_NAME: Final = re.compile(r"[^\s\"<>]*")


def _read_m3(context: StreamParser, marker: str) -> Steps[None]:
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
        if not (yield from copy_members(stream, context.out.arguments, _PREFIX, _INVOKE_END, element)):
            yield from context.pass_rest(_M3[1:])
            return
        stream.record()
        yield from stream.skip_space()
    if not any_call:
        context.release()
        return
    stream.stop_recording()
    yield from stream.accept(_M3[1])


MINIMAX_M3 = ChatFormat(
    name="minimax-m3",
    signature=Signature(all_of=(_PREFIX,)),
    parse=MarkerParser(_read_m3, _M3[:1]),
    calls=CallLayout(
        opening=_M3[0] + "\n",
        call=parts(f'{_INVOKE}$NAME">$ARGUMENTS{_INVOKE_END}\n'),
        closing=_M3[1],
        arguments=NestedTagArguments(_PREFIX),
        triggers=_M3[:1],
    ),
    thought=Thought(opens=("<mm:think>",), closes=("</mm:think>",), ends=_M3[:1]),
    special_tokens=(_PREFIX, "<tool_call>", "</tool_call>", "<mm:think>", "</mm:think>"),
)
