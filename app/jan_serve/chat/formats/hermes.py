"""Hermes 2/3, Qwen 2.5/3, QwQ, MiMo, Bielik, Reka, SmolLM3 and many others write `<tool_call>` around one JSON object
per call.

Source: the models' chat templates (NousResearch's function-calling format). SmolLM3's template reads `xml_tools`, or
no tools at all. Templates without tools get this format too, and `tools_as_text` asks the model to write it: a tag
identifies a call at once, so text still streams, and most models have seen it.
"""

from __future__ import annotations

import msgspec

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


SMOLLM3 = msgspec.structs.replace(
    HERMES, name="smollm3", signature=Signature(any_of=("xml_tools", "named SmolLM"))
)


GENERIC = msgspec.structs.replace(HERMES, name="generic", signature=Signature())
