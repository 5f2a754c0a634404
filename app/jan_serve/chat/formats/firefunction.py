"""Fireworks FireFunction v2: ` functools` before a JSON array.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

OPEN = "functools["

FIREFUNCTION = ChatFormat(
    name="firefunction",
    marks=Marks(all_of=(OPEN,)),
    read=marked_answer(JsonCalls().reader(), OPEN),
    calls=CallLayout(
        opening=" " + OPEN,
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]",
        triggers=(OPEN,),
    ),
    thought=None,
)
