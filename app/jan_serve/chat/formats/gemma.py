"""Gemma 4: `<|tool_call>call:NAME{key:value}<tool_call|>`, strings between `<|"|>`. Earlier Gemmas have no tools.

Source: the model's chat template and Google's prompt formatting page. A thought is a channel, and an answer may have
several. The model sometimes writes a closing marker alone, which is ignored.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, GemmaArguments, Slot
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.literals import GEMMA, copy_literal
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.text_stream import NAME, Steps

OPEN = "<|tool_call>"
CLOSE = "<tool_call|>"
THOUGHT_OPEN = "<|channel>thought\n"
THOUGHT_CLOSE = "<channel|>"


def _read_call(context: ParseContext, marker: str) -> Steps[None]:
    stream = context.stream
    yield from stream.skip_space()
    called = yield from stream.accept("call:")
    name = yield from stream.take_matching(NAME)
    if not called or not name or (yield from stream.peek(1)) != "{":
        context.release()
        return
    context.open_call(name)
    if (yield from copy_literal(stream, context.out.arguments, GEMMA)):
        yield from stream.skip_space()
        yield from stream.accept(CLOSE)
    else:
        yield from context.pass_rest((CLOSE,))


GEMMA4 = ChatFormat(
    name="gemma4",
    signature=Signature(all_of=(OPEN, "call:")),
    parse=marker_parser(_read_call, OPEN, ignored=(THOUGHT_CLOSE,)),
    calls=CallLayout(
        call=(OPEN + "call:", Slot.NAME, Slot.ARGUMENTS, CLOSE),
        arguments=GemmaArguments(),
        triggers=(OPEN,),
    ),
    thought=Thought(opens=(THOUGHT_OPEN,), closes=(THOUGHT_CLOSE,), ends=(OPEN,), anywhere=True),
    special_tokens=(OPEN, CLOSE, "<|channel>", THOUGHT_CLOSE, '<|"|>'),
)
