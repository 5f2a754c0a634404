"""Phi-4-mini: `<|tool_call|>` around a JSON array. Phi-3.5 and Phi-4 have no tools.

Source: Microsoft's model card and chat template.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<|tool_call|>"
CLOSE = "<|/tool_call|>"

PHI4 = ChatFormat(
    name="phi4",
    signature=Signature(all_of=("<|tool|>", "<|/tool|>")),
    # Without the marker, the model falls back to this word.
    parse=marker_parser(JsonCalls(closers=(CLOSE,)), OPEN, "functools["),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
    special_tokens=(OPEN, CLOSE),
)
