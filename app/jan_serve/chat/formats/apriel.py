"""ServiceNow Apriel 1.5 and 1.6: `<tool_calls>` around a JSON array; a line, not a tag, closes the thought.

Source: the models' chat templates. The prompt or the model opens the thought with a sentence.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

OPEN = "<tool_calls>"
CLOSE = "</tool_calls>"

APRIEL = ChatFormat(
    name="apriel",
    signature=Signature(all_of=(OPEN, "[BEGIN FINAL RESPONSE]")),
    parse=marker_parser(JsonCalls(closers=(CLOSE,)), OPEN, ignored=("[END FINAL RESPONSE]",)),
    calls=CallLayout(
        opening=OPEN + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + CLOSE,
        triggers=(OPEN,),
    ),
    thought=Thought(
        opens=("Here are my reasoning steps:\n", "<thinking>"),
        closes=("[BEGIN FINAL RESPONSE]", "</thinking>"),
        ends=(OPEN,),
    ),
    special_tokens=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", OPEN, CLOSE),
)
