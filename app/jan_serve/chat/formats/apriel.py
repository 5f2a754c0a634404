"""ServiceNow Apriel 1.5 and 1.6: `<tool_calls>` around a JSON array; the thought is closed by a line, not a tag.

Source: the models' chat templates. Their prompts open the thought with a sentence, or leave that to the model.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

OPEN = "<tool_calls>"
CLOSE = "</tool_calls>"

APRIEL = ChatFormat(
    name="apriel",
    marks=Marks(all_of=(OPEN, "[BEGIN FINAL RESPONSE]")),
    read=marked_answer(JsonCalls(closers=(CLOSE,)).reader(), OPEN, ignored=("[END FINAL RESPONSE]",)),
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
