"""MiniMax M1 (JSON objects, one a line), M2 (invoke and parameter elements) and M3 (nested elements for every value).

Source: the models' chat templates.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.call_layout import CallLayout, NestedTagArguments, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.nested_tags import Element, copy_members
from jan_serve.chat.parsers.tagged_calls import TaggedCalls
from jan_serve.chat.text_stream import Steps

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
        pieces: list[str] = []
        yield from stream.read_matching(_NAME, pieces.append)
        name = "".join(pieces)
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
