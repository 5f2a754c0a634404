"""Mistral, Devstral, Magistral, Ministral: `[TOOL_CALLS]` before a JSON array, or before each name and its arguments.

Source: the models' chat templates and mistral-common's tokenizer versions (v3 array, v11 `[CALL_ID]`, v13 `[ARGS]`).
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, IdStyle, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.named_calls import NamedCalls

CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"

_THOUGHT = Thought(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"), ends=(CALLS,))
_TOKENS = (CALLS, ARGS, CALL_ID, "[THINK]", "[/THINK]")

_read = marked_answer(
    NamedCalls(call_id=CALL_ID, arguments=(ARGS,), or_json=JsonCalls()).reader(),
    CALLS,
)


def _mistral(name: str, marks: Marks, layout: CallLayout) -> ChatFormat:
    return ChatFormat(
        name=name,
        marks=marks,
        read=_read,
        calls=layout,
        thought=_THOUGHT,
        special_tokens=_TOKENS,
        id_style=IdStyle.NINE_CHARACTERS,
    )


MISTRAL_CALL_ID = _mistral(
    "mistral-call-id",
    Marks(all_of=(CALLS, ARGS, CALL_ID)),
    CallLayout(call=(CALLS, Slot.NAME, CALL_ID, Slot.CALL_ID, ARGS, Slot.ARGUMENTS), triggers=(CALLS,)),
)

MISTRAL_ARGS = _mistral(
    "mistral-args",
    Marks(all_of=(CALLS, ARGS)),
    CallLayout(call=(CALLS, Slot.NAME, ARGS, Slot.ARGUMENTS), triggers=(CALLS,)),
)

MISTRAL_ARRAY = _mistral(
    "mistral-array",
    Marks(all_of=(CALLS,)),
    CallLayout(
        opening=CALLS + "[",
        call=('{"name": "', Slot.NAME, '", "arguments": ', Slot.ARGUMENTS, ', "id": "', Slot.CALL_ID, '"}'),
        separator=", ",
        closing="]",
        triggers=(CALLS,),
    ),
)
