"""Apertus, Apriel, FireFunction, GigaChat, Granite, Hunyuan A13B, InternLM, Jamba, Nemotron and Phi-4-mini write JSON
calls after one marker.

Source: the models' chat templates, and Microsoft's model card.
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.hermes import HERMES, OPEN
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser


def _list(before: str, after: str = "") -> CallLayout:
    return CallLayout(
        opening=before + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + after,
        triggers=(before,),
    )


_NEMOTRON_OPEN = "<TOOLCALL>"
_NEMOTRON_CLOSE = "</TOOLCALL>"

NEMOTRON = ChatFormat(
    name="nemotron",
    signature=Signature(all_of=(_NEMOTRON_OPEN,)),
    parse=marker_parser(JsonCalls(closers=(_NEMOTRON_CLOSE,)), _NEMOTRON_OPEN),
    calls=_list(_NEMOTRON_OPEN, _NEMOTRON_CLOSE),
)


_APERTUS_OPEN = "<|tools_prefix|>"
_APERTUS_CLOSE = "<|tools_suffix|>"

APERTUS = ChatFormat(
    name="apertus",
    signature=Signature(all_of=(_APERTUS_OPEN,)),
    parse=marker_parser(JsonCalls(name_is_key=True, closers=(_APERTUS_CLOSE,)), _APERTUS_OPEN),
    calls=CallLayout(
        opening=_APERTUS_OPEN + "[",
        call=('{"', Slot.NAME, '": ', Slot.ARGUMENTS, "}"),
        separator=", ",
        closing="]" + _APERTUS_CLOSE,
        triggers=(_APERTUS_OPEN,),
    ),
    thought=Thought(
        opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",), ends=(_APERTUS_OPEN,), anywhere=True
    ),
    special_tokens=(_APERTUS_OPEN, _APERTUS_CLOSE, "<|inner_prefix|>", "<|inner_suffix|>"),
)


_CALLS_OPEN = "<tool_calls>"
_CALLS_CLOSE = "</tool_calls>"

APRIEL = ChatFormat(
    name="apriel",
    signature=Signature(all_of=(_CALLS_OPEN, "[BEGIN FINAL RESPONSE]")),
    parse=marker_parser(JsonCalls(closers=(_CALLS_CLOSE,)), _CALLS_OPEN, ignored=("[END FINAL RESPONSE]",)),
    calls=_list(_CALLS_OPEN, _CALLS_CLOSE),
    other_calls=(
        msgspec.structs.replace(
            _list(_CALLS_OPEN, _CALLS_CLOSE),
            call=(
                '{"name": "',
                Slot.NAME,
                '", "arguments": ',
                Slot.ARGUMENTS,
                ', "id": "',
                Slot.CALL_ID,
                '"}',
            ),
        ),
    ),
    thought=Thought(
        opens=("Here are my reasoning steps:\n", "<thinking>"),
        closes=("[BEGIN FINAL RESPONSE]", "</thinking>"),
        ends=(_CALLS_OPEN,),
    ),
    special_tokens=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", _CALLS_OPEN, _CALLS_CLOSE),
)


JAMBA = ChatFormat(
    name="jamba",
    signature=Signature(all_of=("<|bom|>", _CALLS_OPEN)),
    # The template writes a space before each answer.
    parse=marker_parser(JsonCalls(closers=(_CALLS_CLOSE,)), _CALLS_OPEN, around_text=(" ", "")),
    calls=msgspec.structs.replace(
        _list(_CALLS_OPEN, _CALLS_CLOSE),
        opening=f" {_CALLS_OPEN}[\n    ",
        separator=",\n    ",
        closing=f"\n]{_CALLS_CLOSE}",
    ),
    text_opens=" ",
    special_tokens=(_CALLS_OPEN, _CALLS_CLOSE),
)

HUNYUAN = ChatFormat(
    name="hunyuan",
    signature=Signature(all_of=("<|extra_0|>", _CALLS_OPEN)),
    parse=marker_parser(
        JsonCalls(closers=(_CALLS_CLOSE,)),
        _CALLS_OPEN,
        ignored=("<answer>\n", "\n</answer>", "<answer>", "</answer>"),
        around_text=("助手\uff1a", ""),
    ),
    calls=_list(_CALLS_OPEN, _CALLS_CLOSE),
    thought=Thought(ends=(_CALLS_OPEN,)),
    special_tokens=(_CALLS_OPEN, _CALLS_CLOSE, "<think>", "</think>"),
)


_INTERNLM_OPEN = "<|action_start|><|plugin|>"
_INTERNLM_CLOSE = "<|action_end|>"

INTERNLM = ChatFormat(
    name="internlm",
    signature=Signature(all_of=("<|action_start|>",)),
    parse=marker_parser(JsonCalls(closers=(_INTERNLM_CLOSE,)), _INTERNLM_OPEN, "<|action_start|> <|plugin|>"),
    calls=CallLayout(
        call=(
            _INTERNLM_OPEN + '\n{"name": "',
            Slot.NAME,
            '", "arguments": ',
            Slot.ARGUMENTS,
            "}" + _INTERNLM_CLOSE,
        ),
        triggers=(_INTERNLM_OPEN,),
    ),
    special_tokens=("<|action_start|>", "<|plugin|>", _INTERNLM_CLOSE),
)


_GRANITE_CODE_OPEN = "<function_call>"

GRANITE_CODE = ChatFormat(
    name="granite-code",
    signature=Signature(all_of=(f"{_GRANITE_CODE_OPEN} ",)),
    parse=marker_parser(JsonCalls(), _GRANITE_CODE_OPEN),
    calls=CallLayout(
        call=(_GRANITE_CODE_OPEN + ' {"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, "}"),
        separator="\n",
        triggers=(_GRANITE_CODE_OPEN,),
    ),
    thought=None,
    special_tokens=(_GRANITE_CODE_OPEN,),
)


_FIREFUNCTION_OPEN = "functools["

FIREFUNCTION = ChatFormat(
    name="firefunction",
    signature=Signature(all_of=(_FIREFUNCTION_OPEN,)),
    parse=marker_parser(JsonCalls(), _FIREFUNCTION_OPEN),
    calls=msgspec.structs.replace(_list(" functools"), triggers=(_FIREFUNCTION_OPEN,)),
    thought=None,
)


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


_GRANITE_OPEN = "<|tool_call|>"

GRANITE4 = msgspec.structs.replace(
    HERMES, name="granite4", signature=Signature(all_of=("<|start_of_role|>", OPEN))
)

GRANITE3 = ChatFormat(
    name="granite3",
    signature=Signature(all_of=("<|start_of_role|>",)),
    parse=marker_parser(JsonCalls(), _GRANITE_OPEN, around_text=("<response>", "</response>")),
    calls=_list(_GRANITE_OPEN),
    thought=Thought(ends=(_GRANITE_OPEN,)),
    special_tokens=(_GRANITE_OPEN,),
)

GRANITE3_2 = msgspec.structs.replace(
    GRANITE3,
    name="granite3.2",
    signature=Signature(all_of=("<|start_of_role|>", "Here is my thought process:")),
    thought=Thought(
        opens=("Here is my thought process:",), closes=("Here is my response:",), ends=(_GRANITE_OPEN,)
    ),
)


_PHI_OPEN = "<|tool_call|>"
_PHI_CLOSE = "<|/tool_call|>"

PHI4 = ChatFormat(
    name="phi4",
    signature=Signature(all_of=("<|tool|>", "<|/tool|>")),
    # Without the marker, the model falls back to this word.
    parse=marker_parser(JsonCalls(closers=(_PHI_CLOSE,)), _PHI_OPEN, "functools["),
    calls=_list(_PHI_OPEN, _PHI_CLOSE),
    special_tokens=(_PHI_OPEN, _PHI_CLOSE),
)
