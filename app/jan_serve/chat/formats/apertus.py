"""Swiss AI Apertus: `<|tools_prefix|>` around a JSON array of objects whose only key is the tool's name.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<|tools_prefix|>"
CLOSE = "<|tools_suffix|>"

APERTUS = ChatFormat(
    name="apertus",
    signature=Signature(all_of=(OPEN,)),
    parse=marker_parser(JsonCalls(name_is_key=True, closers=(CLOSE,)), OPEN),
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
