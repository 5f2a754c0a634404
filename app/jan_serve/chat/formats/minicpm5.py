"""OpenBMB MiniCPM 5: a function element with param elements; text with line breaks or brackets is in a CDATA section.

Source: the model's chat template.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, Signature
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

CDATA = ("<![CDATA[", "]]>")
OPEN = '<function name="'
CLOSE = "</function>"

MINICPM5 = ChatFormat(
    name="minicpm5",
    signature=Signature(all_of=(OPEN, '<param name="')),
    parse=marker_parser(
        TaggedCalls(
            call_opens=(OPEN,),
            name_end=">",
            argument_open='<param name="',
            key_end='"',
            value_open=">",
            value_close="</param>",
            call_close=CLOSE,
            section=CDATA,
        ),
        OPEN,
    ),
    calls=CallLayout(
        call=(OPEN, Slot.NAME, '">', Slot.ARGUMENTS, CLOSE),
        separator="\n",
        arguments=TaggedArguments(
            argument=('<param name="', Slot.KEY, '">', Slot.VALUE, "</param>"), section=CDATA
        ),
        triggers=(OPEN,),
    ),
)
