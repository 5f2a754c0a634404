"""MeetKai Functionary: v3.1 `<function=NAME>{…}</function>`; v3.2 messages that begin with `>>>` and a recipient.

Source: the models' chat templates. In v3.2 the prompt ends with the first `>>>`, and text goes to the recipient `all`.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.json_calls import BareNameCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.text_stream import NAME, Steps
from jan_serve.text.markers import marker_set

_OPEN = "<function="
_CLOSE = "</function>"

FUNCTIONARY_V3_1 = ChatFormat(
    name="functionary-v3.1",
    signature=Signature(all_of=(_OPEN, _CLOSE), none_of=("<parameter=", "<tool_call>")),
    parse=marker_parser(BareNameCalls(arguments=(">",), closers=(_CLOSE,)), _OPEN),
    calls=CallLayout(
        call=(_OPEN, Slot.NAME, ">", Slot.ARGUMENTS, _CLOSE),
        triggers=(_OPEN,),
    ),
)

RECIPIENT = ">>>"


def _read_v3_2(chat_format: ChatFormat, context: ParseContext) -> Steps[None]:
    del chat_format
    stream, out = context.stream, context.out
    markers = marker_set(RECIPIENT)
    stream.record()
    yield from stream.accept(RECIPIENT)
    while True:
        yield from _read_message(context)
        if (yield from stream.read_until(markers, out.text)) is None:
            return
        stream.record(RECIPIENT)


def _read_message(context: ParseContext) -> Steps[None]:
    """Read a message after its `>>>`: a text message's header only, or a whole call."""
    stream = context.stream
    name = yield from stream.take_matching(NAME)
    if (name != "all" and name not in context.tools) or not (yield from stream.accept("\n")):
        context.release("" if "all".startswith(name) else name)
    elif name == "all" and name not in context.tools:
        stream.stop_recording()
        context.out.break_text()
    elif (yield from stream.peek(1)) != "{":
        context.release()
    else:
        context.open_call(name)
        yield from copy_json(stream, context.out.arguments)


FUNCTIONARY_V3_2 = ChatFormat(
    name="functionary-v3.2",
    signature=Signature(all_of=(">>>all",)),
    parse=_read_v3_2,
    calls=CallLayout(
        call=(Slot.NAME, "\n", Slot.ARGUMENTS),
        separator=RECIPIENT,
        triggers=(RECIPIENT,),
        confirmed_by="\n",
    ),
    text_opens="all\n",
    thought=None,
)
