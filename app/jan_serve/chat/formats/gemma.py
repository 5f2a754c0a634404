"""Gemma 4 and FunctionGemma: `call:NAME{key:value}` between markers, texts between quotes of their own.

Source: the models' chat templates and Google's prompt formatting pages. A thought of Gemma 4 is a channel, and an
answer may have several. The model sometimes writes a closing marker alone, which is ignored. Earlier Gemmas have no
tools.
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.call_layout import CallLayout, GemmaArguments, Slot
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.literals import GEMMA, copy_literal
from jan_serve.chat.parsers.marker_parser import CallParser, marker_parser
from jan_serve.chat.text_stream import NAME, Steps

THOUGHT_OPEN = "<|channel>thought\n"
THOUGHT_CLOSE = "<channel|>"


def _reader(close: str, quote: str) -> CallParser:
    syntax = msgspec.structs.replace(GEMMA, raw_quote=quote)

    def read(context: ParseContext, marker: str) -> Steps[None]:
        del marker
        stream = context.stream
        yield from stream.skip_space()
        called = yield from stream.accept("call:")
        name = yield from stream.take_matching(NAME)
        if not called or not name or (yield from stream.peek(1)) != "{":
            context.release()
            return
        context.open_call(name)
        if (yield from copy_literal(stream, context.out.arguments, syntax)):
            yield from stream.skip_space()
            yield from stream.accept(close)
        else:
            yield from context.pass_rest((close,))

    return read


def _calls(opening: str, close: str, quote: str) -> CallLayout:
    return CallLayout(
        call=(opening + "call:", Slot.NAME, Slot.ARGUMENTS, close),
        arguments=GemmaArguments(quote),
        triggers=(opening,),
    )


_GEMMA4 = ("<|tool_call>", "<tool_call|>", '<|"|>')

GEMMA4 = ChatFormat(
    name="gemma4",
    signature=Signature(all_of=(_GEMMA4[0], "call:")),
    parse=marker_parser(_reader(*_GEMMA4[1:]), _GEMMA4[0], ignored=(THOUGHT_CLOSE,)),
    calls=_calls(*_GEMMA4),
    thought=Thought(opens=(THOUGHT_OPEN,), closes=(THOUGHT_CLOSE,), ends=_GEMMA4[:1], anywhere=True),
    special_tokens=(*_GEMMA4, "<|channel>", THOUGHT_CLOSE),
)

_FUNCTION_GEMMA = ("<start_function_call>", "<end_function_call>", "<escape>")

FUNCTION_GEMMA = ChatFormat(
    name="function-gemma",
    signature=Signature(all_of=(_FUNCTION_GEMMA[0], "call:")),
    parse=marker_parser(
        _reader(*_FUNCTION_GEMMA[1:]),
        _FUNCTION_GEMMA[0],
        ignored=("<start_function_response>",),
    ),
    calls=_calls(*_FUNCTION_GEMMA),
    thought=None,
    special_tokens=(*_FUNCTION_GEMMA, "<start_function_response>"),
)
