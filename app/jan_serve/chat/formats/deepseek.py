"""DeepSeek R1 (and its distillates), V3 and V3.1 write name and JSON arguments between markers with full-width bars;
V3.2 and V4 write elements whose names begin with DSML between such bars, where `string="true"` marks text.

Source: the models' chat templates. R1 and V3 write `function` before the name, and the JSON in a code block.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.parsers.json_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

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


MARK = f"{BAR}DSML{BAR}"


_BLOCKS = ("function_calls", "tool_calls")
_INVOKE = f'<{MARK}invoke name="'


def _dsml(name: str, element: str, none_of: tuple[str, ...]) -> ChatFormat:
    # Models write the other version's block too, and calls without one.
    openers = (*(f"<{MARK}{block}>" for block in _BLOCKS), _INVOKE)
    opening, closing = f"<{MARK}{element}>", f"</{MARK}{element}>"
    calls = TaggedCalls(
        call_opens=(_INVOKE,),
        name_end=">",
        argument_open=f'<{MARK}parameter name="',
        key_end='"',
        value_open=">",
        value_close=f"</{MARK}parameter>",
        call_close=f"</{MARK}invoke>",
        closers=tuple(f"</{MARK}{block}>" for block in _BLOCKS),
    )
    argument = (
        f'<{MARK}parameter name="',
        Slot.KEY,
        '" string="',
        Slot.IS_STRING,
        '">',
        Slot.VALUE,
        f"</{MARK}parameter>\n",
    )
    return ChatFormat(
        name=name,
        signature=Signature(all_of=("DSML", element), none_of=none_of),
        parse=marker_parser(calls, *openers),
        calls=CallLayout(
            opening=opening + "\n",
            call=(_INVOKE, Slot.NAME, '">\n', Slot.ARGUMENTS, f"</{MARK}invoke>\n"),
            closing=closing,
            arguments=TaggedArguments(argument=argument),
            triggers=(opening,),
        ),
        thought=Thought(ends=openers),
        special_tokens=(MARK, "<think>", "</think>"),
    )


DEEPSEEK_V3_2 = _dsml("deepseek-v3.2", "function_calls", none_of=())
DEEPSEEK_V4 = _dsml("deepseek-v4", "tool_calls", none_of=("function_calls>",))
