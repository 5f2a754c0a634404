"""OpenBMB MiniCPM 5: a function element with param elements; text with line breaks or brackets is a CDATA section.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks
from jan_serve.chat.formats.layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

OPEN = '<function name="'
CLOSE = "</function>"

MINICPM5 = ChatFormat(
    name="minicpm5",
    marks=Marks(all_of=(OPEN, '<param name="')),
    read=marked_answer(
        TaggedCalls(
            call_opens=(OPEN,),
            name_end=">",
            argument_open='<param name="',
            key_end='"',
            value_open=">",
            value_close="</param>",
            call_close=CLOSE,
            cdata=True,
        ).reader(),
        OPEN,
    ),
    calls=CallLayout(
        call=(OPEN, Slot.NAME, '">', Slot.ARGUMENTS, CLOSE),
        separator="\n",
        arguments=TaggedArguments(argument=('<param name="', Slot.KEY, '">', Slot.VALUE, "</param>")),
        triggers=(OPEN,),
    ),
)
