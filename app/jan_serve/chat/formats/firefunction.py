"""Fireworks FireFunction v2: ` functools` before a JSON array.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "functools["

FIREFUNCTION = ChatFormat(
    name="firefunction",
    signature=Signature(all_of=(OPEN,)),
    parse=marker_parser(JsonCalls(), OPEN),
    calls=CallLayout(
        opening=" " + OPEN,
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]",
        triggers=(OPEN,),
    ),
    thought=None,
)
