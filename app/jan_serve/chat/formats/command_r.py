"""Cohere Command R and R+ (a JSON code block after `Action:`), Command R7B, Command A and North (action markers).

Source: the models' chat templates. Command R calls the pseudo-tool `directly-answer` when it needs no tool.
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

ACTION_OPEN = "<|START_ACTION|>"
ACTION_CLOSE = "<|END_ACTION|>"
_TEXT_MARKERS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
_THOUGHT_MARKERS = ("<|START_THINKING|>", "<|END_THINKING|>")
_KEYS = ("tool_name", "name")

COMMAND_R7B = ChatFormat(
    name="command-r7b",
    signature=Signature(all_of=(ACTION_OPEN,)),
    parse=marker_parser(
        JsonCalls(name_keys=_KEYS, closers=(ACTION_CLOSE,)), ACTION_OPEN, ignored=_TEXT_MARKERS
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
        opens=_THOUGHT_MARKERS[:1], closes=_THOUGHT_MARKERS[1:], ends=(ACTION_OPEN, *_TEXT_MARKERS[::2])
    ),
    text_opens="<|START_RESPONSE|>",
    special_tokens=(ACTION_OPEN, ACTION_CLOSE, *_TEXT_MARKERS, *_THOUGHT_MARKERS),
)

COHERE2_MOE = msgspec.structs.replace(
    COMMAND_R7B,
    name="cohere2-moe",
    signature=Signature(all_of=(ACTION_OPEN, "<|START_TEXT|>")),
    text_opens="<|START_TEXT|>",
)

_ACTION = "Action:\n```json\n"

COMMAND_R = ChatFormat(
    name="command-r",
    signature=Signature(all_of=("<|CHATBOT_TOKEN|>",)),
    parse=marker_parser(
        JsonCalls(name_keys=_KEYS, closers=("```",), not_calls=("directly-answer", "directly_answer")),
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
        no_call="directly-answer",
    ),
    thought=None,
)
