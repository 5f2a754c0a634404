"""DeepSeek R1 (and its distillates), V3 and V3.1: name and JSON arguments between marks with full-width bars.

Source: the models' chat templates. R1 and V3 put the JSON into a code block behind the word `function`.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.formats.format import ChatFormat, Marks, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.named_calls import NamedCalls

BAR: Final = "\N{FULLWIDTH VERTICAL LINE}"
ALL_OPEN = f"<{BAR}tool▁calls▁begin{BAR}>"
ALL_CLOSE = f"<{BAR}tool▁calls▁end{BAR}>"
OPEN = f"<{BAR}tool▁call▁begin{BAR}>"
SEPARATOR = f"<{BAR}tool▁sep{BAR}>"
CLOSE = f"<{BAR}tool▁call▁end{BAR}>"

_THOUGHT = Thought(ends=(ALL_OPEN, OPEN))
_TOKENS = (ALL_OPEN, ALL_CLOSE, OPEN, SEPARATOR, CLOSE, "<think>", "</think>")

_read = marked_answer(
    NamedCalls(
        before=("function" + SEPARATOR,),
        arguments=(SEPARATOR,),
        fence=("```json", "```"),
        closers=(CLOSE,),
    ).reader(),
    OPEN,
    ignored=(ALL_OPEN, ALL_CLOSE),
)

DEEPSEEK_V3_1 = ChatFormat(
    name="deepseek-v3.1",
    marks=Marks(all_of=(SEPARATOR,), none_of=("```json",)),
    read=_read,
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
    marks=Marks(any_of=(SEPARATOR, f"<{BAR}Assistant{BAR}>")),
    read=_read,
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
