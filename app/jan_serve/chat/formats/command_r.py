"""Cohere Command R and R+ (a JSON code block behind `Action:`), Command R7B, Command A and North (marked actions).

Source: the models' chat templates. Command R calls the tool `directly-answer` to say that it calls none.
"""

from __future__ import annotations

from dataclasses import replace

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer

ACTION_OPEN = "<|START_ACTION|>"
ACTION_CLOSE = "<|END_ACTION|>"
_TEXT_MARKS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
_THOUGHT_MARKS = ("<|START_THINKING|>", "<|END_THINKING|>")
_KEYS = ("tool_name", "name")

COMMAND_R7B = ChatFormat(
    name="command-r7b",
    marks=Marks(all_of=(ACTION_OPEN,)),
    read=marked_answer(
        JsonCalls(name_keys=_KEYS, closers=(ACTION_CLOSE,)).reader(), ACTION_OPEN, ignored=_TEXT_MARKS
    ),
    calls=CallLayout(
        opening=ACTION_OPEN + "[\n",
        call=(
            '    {"tool_call_id": "',
            Slot.INDEX,
            '", "tool_name": "',
            Slot.NAME,
            '", "parameters": ',
            Slot.ARGUMENTS,
            "}",
        ),
        separator=",\n",
        closing="\n]" + ACTION_CLOSE,
        triggers=(ACTION_OPEN,),
    ),
    thought=Thought(
        opens=_THOUGHT_MARKS[:1], closes=_THOUGHT_MARKS[1:], ends=(ACTION_OPEN, *_TEXT_MARKS[::2])
    ),
    text_opens="<|START_RESPONSE|>",
    special_tokens=(ACTION_OPEN, ACTION_CLOSE, *_TEXT_MARKS, *_THOUGHT_MARKS),
)

COHERE2_MOE = replace(
    COMMAND_R7B,
    name="cohere2-moe",
    marks=Marks(all_of=(ACTION_OPEN, "<|START_TEXT|>")),
    text_opens="<|START_TEXT|>",
)

_ACTION = "Action:\n```json\n"

COMMAND_R = ChatFormat(
    name="command-r",
    marks=Marks(all_of=("<|CHATBOT_TOKEN|>",)),
    read=marked_answer(
        JsonCalls(
            name_keys=_KEYS, closers=("```",), not_calls=("directly-answer", "directly_answer")
        ).reader(),
        _ACTION,
        "Action: ```json\n",
    ),
    calls=CallLayout(
        opening=_ACTION + "[\n",
        call=(
            '    {\n        "tool_name": "',
            Slot.NAME,
            '",\n        "parameters": ',
            Slot.ARGUMENTS,
            "\n    }",
        ),
        separator=",\n",
        closing="\n]```",
        triggers=(_ACTION,),
    ),
    thought=None,
)
