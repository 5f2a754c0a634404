"""Phi-4-mini: `<|tool_call|>` around a JSON array. Phi-3.5 and Phi-4 know no tools.

Source: Microsoft's model card and chat template.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

OPEN = "<|tool_call|>"
CLOSE = "<|/tool_call|>"

PHI4 = ChatFormat(
    name="phi4",
    marks=Marks(all_of=("<|tool|>", "<|/tool|>")),
    # The word is what the model falls back to without the mark.
    read=marked_answer(JsonCalls(closers=(CLOSE,)).reader(), OPEN, "functools["),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
    special_tokens=(OPEN, CLOSE),
)
