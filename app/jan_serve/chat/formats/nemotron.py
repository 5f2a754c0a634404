"""NVIDIA Nemotron (Llama-Nemotron, Nano v2): `<TOOLCALL>` around a JSON array. Nemotron 3 uses Qwen3-Coder's format.

Source: the models' chat templates.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<TOOLCALL>"
CLOSE = "</TOOLCALL>"

NEMOTRON = ChatFormat(
    name="nemotron",
    signature=Signature(all_of=(OPEN,)),
    parse=marker_parser(JsonCalls(closers=(CLOSE,)), OPEN),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
)
