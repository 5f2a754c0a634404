"""Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5, Seed-OSS and MiniCPM 5 write a function element with an element for each
argument.

Source: the models' chat templates. Qwen3-Coder sometimes omits the outer tag, so a call also begins without it.
MiniCPM puts text with line breaks or brackets in a CDATA section.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.hermes import CLOSE, OBJECTS, OPEN
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

FUNCTION = "<function="


def _elements(close: str) -> TaggedCalls:
    return TaggedCalls(
        call_opens=(FUNCTION,),
        name_end=">",
        argument_open="<parameter=",
        key_end=">",
        value_close="</parameter>",
        call_close="</function>",
        closers=(close,),
        or_json=OBJECTS if close == CLOSE else None,
    )


_ARGUMENTS = TaggedArguments(argument=("<parameter=", Slot.KEY, ">\n", Slot.VALUE, "\n</parameter>\n"))

QWEN3_CODER = ChatFormat(
    name="qwen3-coder",
    signature=Signature(all_of=(FUNCTION, "<parameter=", OPEN)),
    parse=marker_parser(_elements(CLOSE), OPEN, FUNCTION),
    calls=CallLayout(
        call=(OPEN + "\n" + FUNCTION, Slot.NAME, ">\n", Slot.ARGUMENTS, "</function>\n" + CLOSE),
        separator="\n",
        arguments=_ARGUMENTS,
        triggers=(OPEN, FUNCTION),
    ),
    special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
)

_SEED_OPEN = "<seed:tool_call>"
_SEED_CLOSE = "</seed:tool_call>"

SEED_OSS = ChatFormat(
    name="seed-oss",
    signature=Signature(all_of=("seed:tool_call",)),
    parse=marker_parser(_elements(_SEED_CLOSE), _SEED_OPEN, FUNCTION),
    calls=CallLayout(
        call=(_SEED_OPEN + "\n" + FUNCTION, Slot.NAME, ">\n", Slot.ARGUMENTS, "</function>\n" + _SEED_CLOSE),
        separator="\n",
        arguments=TaggedArguments(argument=("<parameter=", Slot.KEY, ">", Slot.VALUE, "</parameter>\n")),
        triggers=(_SEED_OPEN, FUNCTION),
    ),
    thought=Thought(opens=("<seed:think>",), closes=("</seed:think>",)),
    special_tokens=(_SEED_OPEN, _SEED_CLOSE, "<seed:think>", "</seed:think>"),
)


_CDATA = ("<![CDATA[", "]]>")
_MINICPM_OPEN = '<function name="'
_MINICPM_CLOSE = "</function>"

MINICPM5 = ChatFormat(
    name="minicpm5",
    signature=Signature(all_of=(_MINICPM_OPEN, '<param name="')),
    parse=marker_parser(
        TaggedCalls(
            call_opens=(_MINICPM_OPEN,),
            name_end=">",
            argument_open='<param name="',
            key_end='"',
            value_open=">",
            value_close="</param>",
            call_close=_MINICPM_CLOSE,
            section=_CDATA,
        ),
        _MINICPM_OPEN,
    ),
    calls=CallLayout(
        call=(_MINICPM_OPEN, Slot.NAME, '">', Slot.ARGUMENTS, _MINICPM_CLOSE),
        separator="\n",
        arguments=TaggedArguments(
            argument=('<param name="', Slot.KEY, '">', Slot.VALUE, "</param>"), section=_CDATA
        ),
        triggers=(_MINICPM_OPEN,),
    ),
)
