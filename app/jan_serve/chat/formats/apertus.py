"""Swiss AI Apertus: `<|tools_prefix|>` around a JSON array of objects whose only key is the tool's name.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

OPEN = "<|tools_prefix|>"
CLOSE = "<|tools_suffix|>"

APERTUS = ChatFormat(
    name="apertus",
    marks=Marks(all_of=(OPEN,)),
    read=marked_answer(JsonCalls(name_is_key=True, closers=(CLOSE,)).reader(), OPEN),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"', Slot.NAME, '": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
    thought=Thought(opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",), ends=(OPEN,), anywhere=True),
    special_tokens=(OPEN, CLOSE, "<|inner_prefix|>", "<|inner_suffix|>"),
)
