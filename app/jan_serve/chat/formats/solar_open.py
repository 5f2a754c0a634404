"""Upstage Solar Open: a marker for each kind of message; calls are an id, a name and JSON arguments between markers.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<|tool_call:begin|>"
NAME = "<|tool_call:name|>"
ARGUMENTS = "<|tool_call:args|>"
CLOSE = "<|tool_call:end|>"
_MESSAGE = "<|begin|>assistant"
_ALL = "<|tool_calls|>"

SOLAR_OPEN = ChatFormat(
    name="solar-open",
    signature=Signature(all_of=(OPEN, NAME)),
    parse=marker_parser(
        BareNameCalls(id_before=NAME, arguments=(ARGUMENTS,), closers=(CLOSE,)),
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
