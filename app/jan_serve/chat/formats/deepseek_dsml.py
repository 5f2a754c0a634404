"""DeepSeek V3.2 and V4: elements whose names begin with DSML between full-width bars; `string="true"` marks text.

Source: the models' chat templates.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.deepseek import BAR
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

MARK = f"{BAR}DSML{BAR}"


def _dsml(name: str, element: str, none_of: tuple[str, ...]) -> ChatFormat:
    opening, closing = f"<{MARK}{element}>", f"</{MARK}{element}>"
    calls = TaggedCalls(
        call_opens=(f'<{MARK}invoke name="',),
        name_end=">",
        argument_open=f'<{MARK}parameter name="',
        key_end='"',
        value_open=">",
        value_close=f"</{MARK}parameter>",
        call_close=f"</{MARK}invoke>",
        closers=(closing,),
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
        parse=marker_parser(calls, opening),
        calls=CallLayout(
            opening=opening + "\n",
            call=(f'<{MARK}invoke name="', Slot.NAME, '">\n', Slot.ARGUMENTS, f"</{MARK}invoke>\n"),
            closing=closing,
            arguments=TaggedArguments(argument=argument),
            triggers=(opening,),
        ),
        thought=Thought(ends=(opening,)),
        special_tokens=(MARK, "<think>", "</think>"),
    )


DEEPSEEK_V3_2 = _dsml("deepseek-v3.2", "function_calls", none_of=())
DEEPSEEK_V4 = _dsml("deepseek-v4", "tool_calls", none_of=("function_calls>",))
