"""Liquid LFM2 and LFM2.5: Python calls in a list, between marks.

Source: the models' chat templates. LFM2.5's writes true, false and null as JSON does.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, PythonArguments, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.python_calls import PythonCalls

OPEN = "<|tool_call_start|>"
CLOSE = "<|tool_call_end|>"

LFM2 = ChatFormat(
    name="lfm2",
    marks=Marks(any_of=(OPEN, "<|tool_list_start|>", '"List of tools: ["')),
    read=marked_answer(PythonCalls(closers=(CLOSE,), or_json=JsonCalls(closers=(CLOSE,))).reader(), OPEN),
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
