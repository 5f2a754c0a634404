"""Sber GigaChat 3 (a message with the role `function call`) and 3.1 (`<|function_call|>`), each with one JSON object.

Source: the models' chat templates.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser


def _gigachat(name: str, signature: Signature, opening: str, special_tokens: tuple[str, ...]) -> ChatFormat:
    return ChatFormat(
        name=name,
        signature=signature,
        parse=marker_parser(JsonCalls(), opening),
        calls=CallLayout(
            call=(opening + '{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
            triggers=(opening,),
            parallel=False,
        ),
        thought=None,
        special_tokens=special_tokens,
    )


GIGACHAT3_1 = _gigachat(
    "gigachat3.1",
    Signature(all_of=("<|role_sep|>", "<|function_call|>")),
    "<|function_call|>",
    ("<|function_call|>",),
)

GIGACHAT3 = _gigachat(
    "gigachat3",
    Signature(all_of=("<|role_sep|>", "<|message_sep|>")),
    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    ("<|message_sep|>", "<|role_sep|>"),
)
