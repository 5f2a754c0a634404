"""Kimi K2 (Instruct and Thinking): `functions.NAME:INDEX`, then JSON arguments, between markers.

Source: the models' chat templates and Moonshot's tool call guidance. The index counts calls over the whole chat.
"""

from __future__ import annotations

import re

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, IdStyle, Signature, Thought
from jan_serve.chat.parsers.bare_name_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

ALL_OPEN = "<|tool_calls_section_begin|>"
ALL_CLOSE = "<|tool_calls_section_end|>"
OPEN = "<|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
CLOSE = "<|tool_call_end|>"

KIMI_K2 = ChatFormat(
    name="kimi-k2",
    signature=Signature(all_of=(ALL_OPEN, OPEN)),
    parse=marker_parser(
        BareNameCalls(
            name=re.compile(r"(?:functions\.)?(.+?)(?::\d+)?"), arguments=(ARGUMENTS,), closers=(CLOSE,)
        ),
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
