"""NVIDIA Nemotron (Llama-Nemotron, Nano v2): `<TOOLCALL>` around a JSON array. Nemotron 3 writes as Qwen3-Coder does.

Source: the models' chat templates.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

OPEN = "<TOOLCALL>"
CLOSE = "</TOOLCALL>"

NEMOTRON = ChatFormat(
    name="nemotron",
    marks=Marks(all_of=(OPEN,)),
    read=marked_answer(JsonCalls(closers=(CLOSE,)).reader(), OPEN),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
)
