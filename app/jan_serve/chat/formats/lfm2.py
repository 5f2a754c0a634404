"""Liquid LFM2 and LFM2.5: Python calls in a list, between markers.

Source: the models' chat templates. LFM2.5 writes true, false and null as in JSON.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, PythonArguments, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.python_calls import PythonCalls

OPEN = "<|tool_call_start|>"
CLOSE = "<|tool_call_end|>"

LFM2 = ChatFormat(
    name="lfm2",
    signature=Signature(any_of=(OPEN, "<|tool_list_start|>", '"List of tools: ["')),
    parse=marker_parser(PythonCalls(closers=(CLOSE,), or_json=JsonCalls(closers=(CLOSE,))), OPEN),
    calls=CallLayout(
        opening=OPEN + "[",
        call=(Slot.NAME, "(", Slot.ARGUMENTS, ")"),
        separator=", ",
        closing="]" + CLOSE,
        arguments=PythonArguments(json_words=True),
        triggers=(OPEN,),
    ),
    thought=Thought(ends=(OPEN,)),
    special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
    thought_field="thinking",
)
