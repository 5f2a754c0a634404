"""Kimi K2 (Instruct and Thinking) writes `functions.NAME:INDEX`, then JSON arguments, between markers; Kimi K3 writes
elements made of `<|open|>`, `<|close|>` and `<|sep|>`, around thought, text and calls alike.

Source: the models' chat templates and Moonshot's tool call guidance. The index of K2 counts calls over the whole
chat. The prompt of K3 opens the thought, and a thought may end without its closing tag.
"""

from __future__ import annotations

import re

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, IdStyle, Signature, Thought
from jan_serve.chat.parsers.json_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

ALL_OPEN = "<|tool_calls_section_begin|>"
ALL_CLOSE = "<|tool_calls_section_end|>"
_ONE_OPEN, _ONE_CLOSE = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"
"""Models write the section's markers in the singular too."""
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
        ignored=(ALL_OPEN, ALL_CLOSE, _ONE_OPEN, _ONE_CLOSE, CLOSE),
    ),
    calls=CallLayout(
        opening=ALL_OPEN,
        call=(OPEN + "functions.", Slot.NAME, ":", Slot.INDEX, ARGUMENTS, Slot.ARGUMENTS, CLOSE),
        closing=ALL_CLOSE,
        triggers=(ALL_OPEN,),
    ),
    thought=Thought(ends=(ALL_OPEN, _ONE_OPEN, OPEN)),
    special_tokens=(ALL_OPEN, ALL_CLOSE, OPEN, ARGUMENTS, CLOSE, "<think>", "</think>"),
    id_style=IdStyle.FUNCTION_INDEX,
)


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


_CALL = '<|open|>call tool="'
_ARGUMENT = '<|open|>argument key="'

_calls = TaggedCalls(
    call_opens=(_CALL,),
    name_end="<|sep|>",
    argument_open=_ARGUMENT,
    key_end='"',
    value_open="<|sep|>",
    value_close=_close("argument"),
    call_close=_close("call"),
    closers=(_close("tools"),),
)

KIMI_K3 = ChatFormat(
    name="kimi-k3",
    signature=Signature(all_of=("<|open|>", "<|close|>", "<|sep|>")),
    parse=marker_parser(
        _calls,
        _open("tools"),
        ignored=(_open("response"), _close("response"), _close("message"), "<|end_of_msg|>"),
    ),
    calls=CallLayout(
        opening=_open("tools"),
        call=(_CALL, Slot.NAME, '" index="', Slot.INDEX, '"<|sep|>', Slot.ARGUMENTS, _close("call")),
        closing=_close("tools"),
        arguments=TaggedArguments(
            argument=(
                _ARGUMENT,
                Slot.KEY,
                '" type="',
                Slot.JSON_TYPE,
                '"<|sep|>',
                Slot.VALUE,
                _close("argument"),
            )
        ),
        first_index=1,
        triggers=(_open("tools"),),
    ),
    text_opens=_open("response"),
    thought=Thought(
        opens=(_open("think"),), closes=(_close("think"),), ends=(_open("response"), _open("tools"))
    ),
    special_tokens=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)
