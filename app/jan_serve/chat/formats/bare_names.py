"""Calls as a bare name before JSON arguments, with markers around them: DeepSeek R1 (and its distillates), V3 and V3.1,
Functionary v3.1, Kimi K2, Mistral (with Devstral, Magistral and Ministral) and Upstage Solar Open.

Source: the models' chat templates, Moonshot's tool call guidance, and mistral-common's tokenizer versions (v3 array,
v11 `[CALL_ID]`, v13 `[ARGS]`). DeepSeek R1 and V3 write `function` before the name, and the JSON in a code block. The
index of Kimi K2 counts calls over the whole chat.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from jan_serve.chat.call_layout import CallLayout, IdStyle, listed, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.marked_calls import BareNameCalls, JsonCalls, MarkerParser

_BAR: Final = "\N{FULLWIDTH VERTICAL LINE}"
_BEGIN, _END = f"<{_BAR}tool▁calls▁begin{_BAR}>", f"<{_BAR}tool▁calls▁end{_BAR}>"
_ONE, _SEPARATOR, _ONE_END = (f"<{_BAR}tool▁{mark}{_BAR}>" for mark in ("call▁begin", "sep", "call▁end"))

DEEPSEEK_V3_1 = ChatFormat(
    name="deepseek-v3.1",
    signature=Signature(all_of=(_SEPARATOR,), none_of=("```json",)),
    parse=MarkerParser(
        BareNameCalls(
            before=("function" + _SEPARATOR,),
            arguments=(_SEPARATOR,),
            fence=("```json", "```"),
            closers=(_ONE_END,),
        ),
        (_ONE,),
        ignored=(_BEGIN, _END),
    ),
    calls=CallLayout(
        opening=_BEGIN,
        call=parts(f"{_ONE}$NAME{_SEPARATOR}$ARGUMENTS{_ONE_END}"),
        closing=_END,
        triggers=(_BEGIN,),
    ),
    thought=Thought(ends=(_BEGIN, _ONE)),
    special_tokens=(_BEGIN, _END, _ONE, _SEPARATOR, _ONE_END, "<think>", "</think>"),
)

DEEPSEEK_R1 = replace(
    DEEPSEEK_V3_1,
    name="deepseek-r1",
    signature=Signature(any_of=(_SEPARATOR, f"<{_BAR}Assistant{_BAR}>")),
    calls=replace(
        DEEPSEEK_V3_1.calls,
        call=parts(f"{_ONE}function{_SEPARATOR}$NAME\n```json\n$ARGUMENTS\n```{_ONE_END}"),
        separator="\n",
    ),
)

FUNCTIONARY_V3_1 = ChatFormat(
    name="functionary-v3.1",
    signature=Signature(all_of=("<function=", "</function>"), none_of=("<parameter=", "<tool_call>")),
    parse=MarkerParser(BareNameCalls(arguments=(">",), closers=("</function>",)), ("<function=",)),
    calls=CallLayout(call=parts("<function=$NAME>$ARGUMENTS</function>"), triggers=("<function=",)),
)

_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_SINGULAR = ("<|tool_call_section_begin|>", "<|tool_call_section_end|>")
"""Models write the section's markers in the singular too."""
_CALL = ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")

KIMI_K2 = ChatFormat(
    name="kimi-k2",
    signature=Signature(all_of=(_SECTION[0], _CALL[0])),
    parse=MarkerParser(
        BareNameCalls(
            name=re.compile(r"(?:functions\.)?(.+?)(?::\d+)?"), arguments=(_CALL[1],), closers=(_CALL[2],)
        ),
        (_CALL[0],),
        ignored=(*_SECTION, *_SINGULAR, _CALL[2]),
    ),
    calls=CallLayout(
        opening=_SECTION[0],
        call=parts(f"{_CALL[0]}functions.$NAME:$INDEX{_CALL[1]}$ARGUMENTS{_CALL[2]}"),
        closing=_SECTION[1],
        triggers=_SECTION[:1],
    ),
    thought=Thought(ends=(_SECTION[0], _SINGULAR[0], _CALL[0])),
    special_tokens=(*_SECTION, *_CALL, "<think>", "</think>"),
    id_style=IdStyle.FUNCTION_INDEX,
)

_CALLS, _ARGS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"

MISTRAL_CALL_ID = ChatFormat(
    name="mistral-call-id",
    signature=Signature(all_of=(_CALLS, _ARGS, _CALL_ID)),
    parse=MarkerParser(BareNameCalls(call_id=_CALL_ID, arguments=(_ARGS,), or_json=JsonCalls()), (_CALLS,)),
    calls=CallLayout(call=parts(f"{_CALLS}$NAME{_CALL_ID}$CALL_ID{_ARGS}$ARGUMENTS"), triggers=(_CALLS,)),
    thought=Thought(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"), ends=(_CALLS,)),
    special_tokens=(_CALLS, _ARGS, _CALL_ID, "[THINK]", "[/THINK]"),
    id_style=IdStyle.NINE_CHARACTERS,
)

MISTRAL_ARGS = replace(
    MISTRAL_CALL_ID,
    name="mistral-args",
    signature=Signature(all_of=(_CALLS, _ARGS)),
    calls=CallLayout(call=parts(f"{_CALLS}$NAME{_ARGS}$ARGUMENTS"), triggers=(_CALLS,)),
)

_ARRAY = listed('{"name": "$NAME", "arguments": $ARGUMENTS, "id": "$CALL_ID"}', _CALLS)

MISTRAL_ARRAY = replace(
    MISTRAL_CALL_ID,
    name="mistral-array",
    signature=Signature(all_of=(_CALLS,)),
    calls=_ARRAY,
    other_calls=(replace(_ARRAY, opening=_CALLS + " ["),),
)

_OPEN, _NAME, _ARGUMENTS, _CLOSE = (f"<|tool_call:{part}|>" for part in ("begin", "name", "args", "end"))
_MESSAGE, _ALL = "<|begin|>assistant", "<|tool_calls|>"

SOLAR_OPEN = ChatFormat(
    name="solar-open",
    signature=Signature(all_of=(_OPEN, _NAME)),
    parse=MarkerParser(
        BareNameCalls(id_before=_NAME, arguments=(_ARGUMENTS,), closers=(_CLOSE,)),
        (_OPEN,),
        ignored=(_MESSAGE, "<|content|>", "<|end|>", _ALL, "<|calls|>"),
    ),
    calls=CallLayout(
        opening=_ALL,
        call=parts(f"{_OPEN}$CALL_ID{_NAME}$NAME{_ARGUMENTS}$ARGUMENTS{_CLOSE}"),
        closing="<|calls|>",
        after_thought=_MESSAGE,
        triggers=(_ALL,),
    ),
    text_opens="<|content|>",
    thought=Thought(opens=("<|think|>",), closes=("<|end|>",), ends=(_ALL,)),
    special_tokens=(
        *("<|begin|>", "<|content|>", "<|think|>", "<|end|>"),
        *(_ALL, _OPEN, _NAME, _ARGUMENTS, _CLOSE),
    ),
    thought_field="reasoning",
)
