"""Calls as JSON objects after a marker: Hermes and most others (each object in `<tool_call>`), Apertus, Apriel, Command
R, FireFunction, GigaChat, Granite, Hunyuan A13B, InternLM, Jamba, MiniMax M1, Nemotron and Phi-4-mini.

Source: the models' chat templates, and Microsoft's model card. Hermes is the format of Qwen 2.5/3, QwQ, MiMo, Bielik,
Reka, SmolLM3 (whose template reads `xml_tools`, or no tools at all) and many others. Templates without tools get it
too, and `tools_as_text` asks the model to write it: a tag identifies a call at once, so text still streams, and most
models have seen it. Command R calls the pseudo-tool `directly-answer` when it needs no tool.
"""

from __future__ import annotations

from msgspec.structs import replace

from jan_serve.chat.call_layout import CallLayout, listed, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.marked_calls import JsonCalls, MarkerParser

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

OBJECTS = JsonCalls(closers=(CLOSE,))

HERMES = ChatFormat(
    name="hermes",
    signature=Signature(all_of=(OPEN,)),
    parse=MarkerParser(OBJECTS, (OPEN,)),
    calls=CallLayout(
        call=parts(OPEN + '\n{"name": "$NAME", "arguments": $ARGUMENTS}\n' + CLOSE),
        separator="\n",
        triggers=(OPEN,),
        optional_breaks=True,
    ),
    special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
)

SMOLLM3 = replace(HERMES, name="smollm3", signature=Signature(any_of=("xml_tools", "named SmolLM")))
GRANITE4 = replace(HERMES, name="granite4", signature=Signature(all_of=("<|start_of_role|>", OPEN)))
GENERIC = replace(HERMES, name="generic", signature=Signature())

_OBJECT = '{"name": "$NAME", "arguments": $ARGUMENTS}'


def _list(before: str, after: str = "", call: str = _OBJECT) -> CallLayout:
    return listed(call, before, after)


_NEMOTRON = ("<TOOLCALL>", "</TOOLCALL>")

NEMOTRON = ChatFormat(
    name="nemotron",
    signature=Signature(all_of=_NEMOTRON[:1]),
    parse=MarkerParser(JsonCalls(closers=_NEMOTRON[1:]), _NEMOTRON[:1]),
    calls=_list(*_NEMOTRON),
)

_APERTUS = ("<|tools_prefix|>", "<|tools_suffix|>")

APERTUS = ChatFormat(
    name="apertus",
    signature=Signature(all_of=_APERTUS[:1]),
    parse=MarkerParser(JsonCalls(name_is_key=True, closers=_APERTUS[1:]), _APERTUS[:1]),
    calls=_list(*_APERTUS, '{"$NAME": $ARGUMENTS}'),
    thought=Thought(
        opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",), ends=_APERTUS[:1], anywhere=True
    ),
    special_tokens=(*_APERTUS, "<|inner_prefix|>", "<|inner_suffix|>"),
)

_CALLS_OPEN = "<tool_calls>"
_CALLS_CLOSE = "</tool_calls>"
_IN_CALLS = JsonCalls(closers=(_CALLS_CLOSE,))

APRIEL = ChatFormat(
    name="apriel",
    signature=Signature(all_of=(_CALLS_OPEN, "[BEGIN FINAL RESPONSE]")),
    parse=MarkerParser(_IN_CALLS, (_CALLS_OPEN,), ignored=("[END FINAL RESPONSE]",)),
    calls=_list(_CALLS_OPEN, _CALLS_CLOSE),
    other_calls=(
        _list(_CALLS_OPEN, _CALLS_CLOSE, '{"name": "$NAME", "arguments": $ARGUMENTS, "id": "$CALL_ID"}'),
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
    parse=MarkerParser(_IN_CALLS, (_CALLS_OPEN,), around_text=(" ", "")),
    calls=CallLayout(
        opening=f" {_CALLS_OPEN}[\n    ",
        call=parts(_OBJECT),
        separator=",\n    ",
        closing=f"\n]{_CALLS_CLOSE}",
        triggers=(_CALLS_OPEN,),
    ),
    text_opens=" ",
    special_tokens=(_CALLS_OPEN, _CALLS_CLOSE),
)

HUNYUAN = ChatFormat(
    name="hunyuan",
    signature=Signature(all_of=("<|extra_0|>", _CALLS_OPEN)),
    parse=MarkerParser(
        _IN_CALLS,
        (_CALLS_OPEN,),
        ignored=("<answer>\n", "\n</answer>", "<answer>", "</answer>"),
        around_text=("助手\uff1a", ""),
    ),
    calls=_list(_CALLS_OPEN, _CALLS_CLOSE),
    thought=Thought(ends=(_CALLS_OPEN,)),
    special_tokens=(_CALLS_OPEN, _CALLS_CLOSE, "<think>", "</think>"),
)

MINIMAX_M1 = ChatFormat(
    name="minimax-m1",
    signature=Signature(all_of=(_CALLS_OPEN, "<beginning_of_sentence>")),
    parse=MarkerParser(_IN_CALLS, (_CALLS_OPEN,)),
    calls=CallLayout(
        opening=_CALLS_OPEN + "\n", call=parts(_OBJECT + "\n"), closing=_CALLS_CLOSE, triggers=(_CALLS_OPEN,)
    ),
)

_INTERNLM_OPEN = "<|action_start|><|plugin|>"
_INTERNLM_CLOSE = "<|action_end|>"

INTERNLM = ChatFormat(
    name="internlm",
    signature=Signature(all_of=("<|action_start|>",)),
    parse=MarkerParser(
        JsonCalls(closers=(_INTERNLM_CLOSE,)), (_INTERNLM_OPEN, "<|action_start|> <|plugin|>")
    ),
    calls=CallLayout(call=parts(f"{_INTERNLM_OPEN}\n{_OBJECT}{_INTERNLM_CLOSE}"), triggers=(_INTERNLM_OPEN,)),
    special_tokens=("<|action_start|>", "<|plugin|>", _INTERNLM_CLOSE),
)


def _unclosed(name: str, signature: Signature, marker: str, layout: CallLayout, *tokens: str) -> ChatFormat:
    """Calls that no marker closes, of a model that writes no thoughts."""
    parse = MarkerParser(JsonCalls(), (marker,))
    return ChatFormat(
        name=name, signature=signature, parse=parse, calls=layout, thought=None, special_tokens=tokens
    )


_GRANITE_CODE = "<function_call>"

GRANITE_CODE = _unclosed(
    "granite-code",
    Signature(all_of=(f"{_GRANITE_CODE} ",)),
    _GRANITE_CODE,
    CallLayout(call=parts(f"{_GRANITE_CODE} {_OBJECT}"), separator="\n", triggers=(_GRANITE_CODE,)),
    _GRANITE_CODE,
)

FIREFUNCTION = _unclosed(
    "firefunction",
    Signature(all_of=("functools[",)),
    "functools[",
    replace(_list(" functools"), triggers=("functools[",)),
)


def _single(marker: str) -> CallLayout:
    return CallLayout(call=parts(marker + _OBJECT), triggers=(marker,), parallel=False)


_GIGACHAT3_1 = "<|function_call|>"
_GIGACHAT3 = "<|message_sep|>\n\nfunction call<|role_sep|>\n"

GIGACHAT3_1 = _unclosed(
    "gigachat3.1",
    Signature(all_of=("<|role_sep|>", _GIGACHAT3_1)),
    _GIGACHAT3_1,
    _single(_GIGACHAT3_1),
    _GIGACHAT3_1,
)
GIGACHAT3 = _unclosed(
    "gigachat3",
    Signature(all_of=("<|role_sep|>", "<|message_sep|>")),
    _GIGACHAT3,
    _single(_GIGACHAT3),
    *("<|message_sep|>", "<|role_sep|>"),
)

_GRANITE_OPEN = "<|tool_call|>"

GRANITE3 = ChatFormat(
    name="granite3",
    signature=Signature(all_of=("<|start_of_role|>",)),
    parse=MarkerParser(JsonCalls(), (_GRANITE_OPEN,), around_text=("<response>", "</response>")),
    calls=_list(_GRANITE_OPEN),
    thought=Thought(ends=(_GRANITE_OPEN,)),
    special_tokens=(_GRANITE_OPEN,),
)

GRANITE3_2 = replace(
    GRANITE3,
    name="granite3.2",
    signature=Signature(all_of=("<|start_of_role|>", "Here is my thought process:")),
    thought=Thought(
        opens=("Here is my thought process:",), closes=("Here is my response:",), ends=(_GRANITE_OPEN,)
    ),
)

_PHI = ("<|tool_call|>", "<|/tool_call|>")

PHI4 = ChatFormat(
    name="phi4",
    signature=Signature(all_of=("<|tool|>", "<|/tool|>")),
    # Without the marker, the model falls back to the other word.
    parse=MarkerParser(JsonCalls(closers=_PHI[1:]), (_PHI[0], "functools[")),
    calls=_list(*_PHI),
    special_tokens=_PHI,
)

_ACTION = ("<|START_ACTION|>", "<|END_ACTION|>")
_TEXT_MARKERS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
_THOUGHT_MARKERS = ("<|START_THINKING|>", "<|END_THINKING|>")
_KEYS = ("tool_name", "name")

COMMAND_R7B = ChatFormat(
    name="command-r7b",
    signature=Signature(all_of=_ACTION[:1]),
    parse=MarkerParser(JsonCalls(name_keys=_KEYS, closers=_ACTION[1:]), _ACTION[:1], ignored=_TEXT_MARKERS),
    calls=CallLayout(
        opening=_ACTION[0] + "[\n",
        call=parts('    {"tool_call_id": "$INDEX", "tool_name": "$NAME", "parameters": $ARGUMENTS}'),
        separator=",\n",
        closing="\n]" + _ACTION[1],
        triggers=_ACTION[:1],
    ),
    thought=Thought(
        opens=_THOUGHT_MARKERS[:1], closes=_THOUGHT_MARKERS[1:], ends=(_ACTION[0], *_TEXT_MARKERS[::2])
    ),
    text_opens="<|START_RESPONSE|>",
    special_tokens=(*_ACTION, *_TEXT_MARKERS, *_THOUGHT_MARKERS),
)

COHERE2_MOE = replace(
    COMMAND_R7B,
    name="cohere2-moe",
    signature=Signature(all_of=(_ACTION[0], "<|START_TEXT|>")),
    text_opens="<|START_TEXT|>",
)

_BLOCK = "Action:\n```json\n"

COMMAND_R = ChatFormat(
    name="command-r",
    signature=Signature(all_of=("<|CHATBOT_TOKEN|>",)),
    parse=MarkerParser(
        JsonCalls(name_keys=_KEYS, closers=("```",), not_calls=("directly-answer", "directly_answer")),
        (_BLOCK, "Action: ```json\n"),
    ),
    calls=CallLayout(
        opening=_BLOCK + "[\n",
        call=parts('    {\n        "tool_name": "$NAME",\n        "parameters": $ARGUMENTS\n    }'),
        separator=",\n",
        closing="\n]```",
        triggers=(_BLOCK,),
        no_call="directly-answer",
    ),
    thought=None,
)
