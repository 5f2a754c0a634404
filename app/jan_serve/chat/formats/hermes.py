"""Hermes 2/3, Qwen 2.5/3, QwQ, MiMo, Bielik, Reka and many others: `<tool_call>` around one JSON object per call.

Source: the models' chat templates (NousResearch's function-calling format).
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

OBJECTS = JsonCalls(closers=(CLOSE,))

LAYOUT = CallLayout(
    call=(OPEN + '\n{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}\n" + CLOSE),
    separator="\n",
    triggers=(OPEN,),
    optional_breaks=True,
)

HERMES = ChatFormat(
    name="hermes",
    signature=Signature(all_of=(OPEN,)),
    parse=marker_parser(OBJECTS, OPEN),
    calls=LAYOUT,
    special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
)
