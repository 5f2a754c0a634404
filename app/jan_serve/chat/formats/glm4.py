"""GLM 4.5 to 4.7, Laguna, Spark, Ling 3 and Hunyuan 3: a name, then key and value elements, in a `<tool_call>`.

Source: the models' chat templates, which differ in line breaks and in the spelling of the tags.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot, TaggedArguments
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.hermes import CLOSE, OBJECTS, OPEN
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls


def _elements(suffix: str = "", name_end: str = "") -> TaggedCalls:
    return TaggedCalls(
        name_end=name_end,
        argument_open=f"<arg_key{suffix}>",
        key_end=f"</arg_key{suffix}>",
        value_open=f"<arg_value{suffix}>",
        value_close=f"</arg_value{suffix}>",
        call_close=f"</tool_call{suffix}>",
        or_json=None if suffix else OBJECTS,
    )


def _glm(name: str, signature: Signature, line: str, after_argument: str, between: str) -> ChatFormat:
    """line: the break between tags. after_argument, between: separators of arguments, and of calls."""
    argument = (
        "<arg_key>",
        Slot.KEY,
        f"</arg_key>{line}<arg_value>",
        Slot.VALUE,
        "</arg_value>" + after_argument,
    )
    return ChatFormat(
        name=name,
        signature=signature,
        parse=marker_parser(_elements(), OPEN),
        calls=CallLayout(
            call=(OPEN, Slot.NAME, line, Slot.ARGUMENTS, CLOSE),
            separator=between,
            arguments=TaggedArguments(argument=argument),
            triggers=(OPEN,),
        ),
        special_tokens=(OPEN, CLOSE, "<think>", "</think>"),
    )


GLM_4_5 = _glm("glm-4.5", Signature(all_of=("<arg_key>",)), "\n", "\n", "\n")

GLM_4_7 = _glm(
    "glm-4.7",
    Signature(all_of=("<arg_key>",), any_of=("</arg_key><arg_value>", '</arg_key>" -}}')),
    "",
    "",
    "",
)

_HY = ":opensource"

HUNYUAN3 = ChatFormat(
    name="hunyuan3",
    signature=Signature(all_of=("<arg_key{}>", "HYTK")),
    parse=marker_parser(
        _elements(_HY, f"<tool_sep{_HY}>"),
        f"<tool_call{_HY}>",
        ignored=(f"<tool_calls{_HY}>", f"</tool_calls{_HY}>"),
    ),
    calls=CallLayout(
        opening=f"<tool_calls{_HY}>\n",
        call=(f"<tool_call{_HY}>", Slot.NAME, f"<tool_sep{_HY}>\n", Slot.ARGUMENTS, f"</tool_call{_HY}>\n"),
        closing=f"</tool_calls{_HY}>",
        arguments=TaggedArguments(
            argument=(
                f"<arg_key{_HY}>",
                Slot.KEY,
                f"</arg_key{_HY}>\n<arg_value{_HY}>",
                Slot.VALUE,
                f"</arg_value{_HY}>\n",
            )
        ),
        triggers=(f"<tool_calls{_HY}>",),
    ),
    thought=Thought(
        opens=(f"<think{_HY}>",), closes=(f"</think{_HY}>",), ends=(f"<tool_calls{_HY}>", f"<tool_call{_HY}>")
    ),
    special_tokens=tuple(
        f"<{tag}{_HY}>"
        for element in ("think", "tool_calls", "tool_call", "arg_key", "arg_value", "tool_sep")
        for tag in (element, f"/{element}")
    ),
)
