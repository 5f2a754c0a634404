"""Kimi K3: elements written with the marks `<|open|>`, `<|close|>` and `<|sep|>`, around thought, text and calls alike.

Source: the model's chat template. The prompt opens the thought, and a thought may end without its closing tag.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.tagged_calls import TaggedCalls


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


_CALL = '<|open|>call tool="'
_ARGUMENT = '<|open|>argument key="'

_calls = TaggedCalls(
    call_opens=(_CALL,),
    name_end="<|sep|>",
    argument_open=_ARGUMENT,
    key_end='"',
    value_open="<|sep|>",
    value_close=_close("argument"),
    call_close=_close("call"),
    closers=(_close("tools"),),
)

KIMI_K3 = ChatFormat(
    name="kimi-k3",
    marks=Marks(all_of=("<|open|>", "<|close|>", "<|sep|>")),
    read=marked_answer(
        _calls.reader(),
        _open("tools"),
        ignored=(_open("response"), _close("response"), _close("message"), "<|end_of_msg|>"),
    ),
    calls=CallLayout(
        opening=_open("tools"),
        call=(_CALL, Slot.NAME, '" index="', Slot.INDEX, '"<|sep|>', Slot.ARGUMENTS, _close("call")),
        closing=_close("tools"),
        arguments=TaggedArguments(
            argument=(
                _ARGUMENT,
                Slot.KEY,
                '" type="',
                Slot.JSON_TYPE,
                '"<|sep|>',
                Slot.VALUE,
                _close("argument"),
            )
        ),
        first_index=1,
        triggers=(_open("tools"),),
    ),
    text_opens=_open("response"),
    thought=Thought(
        opens=(_open("think"),), closes=(_close("think"),), ends=(_open("response"), _open("tools"))
    ),
    special_tokens=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)
