"""Upstage Solar Open: messages whose kind is a mark; calls are an id, a name and JSON arguments between marks.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.named_calls import NamedCalls

OPEN = "<|tool_call:begin|>"
NAME = "<|tool_call:name|>"
ARGUMENTS = "<|tool_call:args|>"
CLOSE = "<|tool_call:end|>"
_MESSAGE = "<|begin|>assistant"
_ALL = "<|tool_calls|>"

SOLAR_OPEN = ChatFormat(
    name="solar-open",
    marks=Marks(all_of=(OPEN, NAME)),
    read=marked_answer(
        NamedCalls(id_before=NAME, arguments=(ARGUMENTS,), closers=(CLOSE,)).reader(),
        OPEN,
        ignored=(_MESSAGE, "<|content|>", "<|end|>", _ALL, "<|calls|>"),
    ),
    calls=CallLayout(
        opening=_ALL,
        call=(OPEN, Slot.CALL_ID, NAME, Slot.NAME, ARGUMENTS, Slot.ARGUMENTS, CLOSE),
        closing="<|calls|>",
        after_thought=_MESSAGE,
        triggers=(_ALL,),
    ),
    text_opens="<|content|>",
    thought=Thought(opens=("<|think|>",), closes=("<|end|>",), ends=(_ALL,)),
    special_tokens=(
        "<|begin|>",
        "<|content|>",
        "<|think|>",
        "<|end|>",
        _ALL,
        OPEN,
        NAME,
        ARGUMENTS,
        CLOSE,
    ),
    thought_field="reasoning",
)
