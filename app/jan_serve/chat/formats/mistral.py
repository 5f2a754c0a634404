"""Mistral, Devstral, Magistral, Ministral: `[TOOL_CALLS]` before a JSON array, or before each name and its arguments.

Source: the models' chat templates and mistral-common's tokenizer versions (v3 array, v11 `[CALL_ID]`, v13 `[ARGS]`).
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, IdStyle, Signature, Thought
from jan_serve.chat.parsers.json_calls import BareNameCalls, JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"

_THOUGHT = Thought(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"), ends=(CALLS,))
_TOKENS = (CALLS, ARGS, CALL_ID, "[THINK]", "[/THINK]")

_read = marker_parser(
    BareNameCalls(call_id=CALL_ID, arguments=(ARGS,), or_json=JsonCalls()),
    CALLS,
)


def _mistral(name: str, signature: Signature, layout: CallLayout, *others: CallLayout) -> ChatFormat:
    return ChatFormat(
        name=name,
        signature=signature,
        parse=_read,
        calls=layout,
        other_calls=others,
        thought=_THOUGHT,
        special_tokens=_TOKENS,
        id_style=IdStyle.NINE_CHARACTERS,
    )


MISTRAL_CALL_ID = _mistral(
    "mistral-call-id",
    Signature(all_of=(CALLS, ARGS, CALL_ID)),
    CallLayout(call=(CALLS, Slot.NAME, CALL_ID, Slot.CALL_ID, ARGS, Slot.ARGUMENTS), triggers=(CALLS,)),
)

MISTRAL_ARGS = _mistral(
    "mistral-args",
    Signature(all_of=(CALLS, ARGS)),
    CallLayout(call=(CALLS, Slot.NAME, ARGS, Slot.ARGUMENTS), triggers=(CALLS,)),
)

_ARRAY = CallLayout(
    opening=CALLS + "[",
    call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, ', "id": "', Slot.CALL_ID, '"}'),
    separator=", ",
    closing="]",
    triggers=(CALLS,),
)

MISTRAL_ARRAY = _mistral(
    "mistral-array",
    Signature(all_of=(CALLS,)),
    _ARRAY,
    msgspec.structs.replace(_ARRAY, opening=CALLS + " ["),
)
