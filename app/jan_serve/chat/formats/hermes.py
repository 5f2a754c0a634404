"""Hermes 2/3, Qwen 2.5/3, QwQ, MiMo, Bielik, Reka and many more: `<tool_call>` around a JSON object for each call.

Source: the models' chat templates (NousResearch's function-calling format).
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

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
    marks=Marks(all_of=(OPEN,)),
    read=marked_answer(OBJECTS.reader(), OPEN),
    calls=LAYOUT,
    special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
)
