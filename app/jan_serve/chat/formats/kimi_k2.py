"""Kimi K2 (Instruct and Thinking): `functions.NAME:INDEX`, then JSON arguments, between marks.

Source: the models' chat templates and Moonshot's tool call guidance. The index counts over the whole chat.
"""

from __future__ import annotations

import re

from jan_serve.chat.formats.format import ChatFormat, IdStyle, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.named_calls import NamedCalls

ALL_OPEN = "<|tool_calls_section_begin|>"
ALL_CLOSE = "<|tool_calls_section_end|>"
OPEN = "<|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
CLOSE = "<|tool_call_end|>"

KIMI_K2 = ChatFormat(
    name="kimi-k2",
    marks=Marks(all_of=(ALL_OPEN, OPEN)),
    read=marked_answer(
        NamedCalls(
            name=re.compile(r"(?:functions\.)?(.+?)(?::\d+)?"), arguments=(ARGUMENTS,), closers=(CLOSE,)
        ).reader(),
        OPEN,
        ignored=(ALL_OPEN, ALL_CLOSE),
    ),
    calls=CallLayout(
        opening=ALL_OPEN,
        call=(OPEN + "functions.", Slot.NAME, ":", Slot.INDEX, ARGUMENTS, Slot.ARGUMENTS, CLOSE),
        closing=ALL_CLOSE,
        triggers=(ALL_OPEN,),
    ),
    thought=Thought(ends=(ALL_OPEN, OPEN)),
    special_tokens=(ALL_OPEN, ALL_CLOSE, OPEN, ARGUMENTS, CLOSE, "<think>", "</think>"),
    id_style=IdStyle.FUNCTION_INDEX,
)
