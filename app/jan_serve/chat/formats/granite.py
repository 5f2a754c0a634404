"""IBM Granite 3.x: `<|tool_call|>` before a JSON array. Granite 4 uses the Hermes format.

Source: the models' chat templates. Granite 3.2 opens and closes thoughts with sentences, 3.3 with tags; both then put
tags around the answer.
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.hermes import HERMES, OPEN
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

CALLS = "<|tool_call|>"

GRANITE4 = msgspec.structs.replace(
    HERMES, name="granite4", signature=Signature(all_of=("<|start_of_role|>", OPEN))
)

GRANITE3 = ChatFormat(
    name="granite3",
    signature=Signature(all_of=("<|start_of_role|>",)),
    parse=marker_parser(JsonCalls(), CALLS, around_text=("<response>", "</response>")),
    calls=CallLayout(
        opening=CALLS + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]",
        triggers=(CALLS,),
    ),
    thought=Thought(ends=(CALLS,)),
    special_tokens=(CALLS,),
)

GRANITE3_2 = msgspec.structs.replace(
    GRANITE3,
    name="granite3.2",
    signature=Signature(all_of=("<|start_of_role|>", "Here is my thought process:")),
    thought=Thought(opens=("Here is my thought process:",), closes=("Here is my response:",), ends=(CALLS,)),
)
