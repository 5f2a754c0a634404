"""Muse Glimmer: messages with a recipient; calls are invoke and parameter elements in messages to a tool.

Source: the model's chat template.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.parsers.message_parser import TEXT, THOUGHT, Kind, MessageParser, Route
from jan_serve.chat.parsers.tagged_calls import TaggedCalls
from jan_serve.chat.text_stream import Sink, Steps, discard

START = "<|start|>assistant"
BODY = "<|message|>"
OPEN = "<atem:function_calls>"
CLOSE = "</atem:function_calls>"

_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")

_elements = TaggedCalls(
    call_opens=('<atem:invoke name="',),
    name_end=">",
    argument_open='<atem:parameter name="',
    key_end='"',
    value_open=">",
    value_close="</atem:parameter>",
    call_close="</atem:invoke>",
    closers=(CLOSE,),
)


def _route(header: str) -> Route:
    match = _RECIPIENT.search(header)
    if match is None or match.group(1) == "user":
        return TEXT
    return THOUGHT if match.group(1) == "self" else Route(Kind.CALL, match.group(1))


def _read_call(context: ParseContext, recipient: str) -> Steps[Sink | None]:
    del recipient  # the element names the tool
    before = context.out.calls
    yield from context.stream.skip_space()
    if not (yield from context.stream.accept(OPEN)):
        return None
    yield from _elements(context, OPEN)
    return discard if context.out.calls > before else context.out.text


MUSE_GLIMMER = ChatFormat(
    name="muse-glimmer",
    signature=Signature(all_of=("<atem:function_calls>", "<|eom|>")),
    parse=MessageParser(
        start="<|start|>",
        role="assistant",
        heads=(" to=", BODY),
        body=BODY,
        ends=("<|eom|>", "<|eot|>"),
        route=_route,
        read_call=_read_call,
    ),
    calls=CallLayout(
        call=(
            " to=",
            Slot.NAME,
            BODY + OPEN + '\n<atem:invoke name="',
            Slot.NAME,
            '">\n',
            Slot.ARGUMENTS,
            "</atem:invoke>\n" + CLOSE,
        ),
        separator="<|eom|>" + START,
        after_thought=START,
        arguments=TaggedArguments(
            argument=('<atem:parameter name="', Slot.KEY, '">', Slot.VALUE, "</atem:parameter>\n")
        ),
        triggers=(OPEN,),
    ),
    text_opens=" to=user" + BODY,
    thought=Thought(opens=(" to=self" + BODY,), closes=("<|eom|>",)),
    special_tokens=("<|start|>", BODY, "<|eom|>", "<|eot|>"),
)
