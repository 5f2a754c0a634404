"""DeepSeek R1 (and its distillates), V3 and V3.1: name and JSON arguments between markers with full-width bars.

Source: the models' chat templates. R1 and V3 write `function` before the name, and the JSON in a code block.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.bare_name_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser

BAR: Final = "\N{FULLWIDTH VERTICAL LINE}"
ALL_OPEN = f"<{BAR}tool▁calls▁begin{BAR}>"
ALL_CLOSE = f"<{BAR}tool▁calls▁end{BAR}>"
OPEN = f"<{BAR}tool▁call▁begin{BAR}>"
SEPARATOR = f"<{BAR}tool▁sep{BAR}>"
CLOSE = f"<{BAR}tool▁call▁end{BAR}>"

_THOUGHT = Thought(ends=(ALL_OPEN, OPEN))
_TOKENS = (ALL_OPEN, ALL_CLOSE, OPEN, SEPARATOR, CLOSE, "<think>", "</think>")

_read = marker_parser(
    BareNameCalls(
        before=("function" + SEPARATOR,),
        arguments=(SEPARATOR,),
        fence=("```json", "```"),
        closers=(CLOSE,),
    ),
    OPEN,
    ignored=(ALL_OPEN, ALL_CLOSE),
)

DEEPSEEK_V3_1 = ChatFormat(
    name="deepseek-v3.1",
    signature=Signature(all_of=(SEPARATOR,), none_of=("```json",)),
    parse=_read,
    calls=CallLayout(
        opening=ALL_OPEN,
        call=(OPEN, Slot.NAME, SEPARATOR, Slot.ARGUMENTS, CLOSE),
        closing=ALL_CLOSE,
        triggers=(ALL_OPEN,),
    ),
    thought=_THOUGHT,
    special_tokens=_TOKENS,
)

DEEPSEEK_R1 = ChatFormat(
    name="deepseek-r1",
    signature=Signature(any_of=(SEPARATOR, f"<{BAR}Assistant{BAR}>")),
    parse=_read,
    calls=CallLayout(
        opening=ALL_OPEN,
        call=(OPEN + "function" + SEPARATOR, Slot.NAME, "\n```json\n", Slot.ARGUMENTS, "\n```" + CLOSE),
        separator="\n",
        closing=ALL_CLOSE,
        triggers=(ALL_OPEN,),
    ),
    thought=_THOUGHT,
    special_tokens=_TOKENS,
)
