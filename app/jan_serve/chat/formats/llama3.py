"""Llama 3.1 to 3.3: a call is the whole answer, one JSON object without a marker, or after `<|python_tag|>`.

Source: the models' chat templates and Meta's prompt format pages. An object is a call only if it has no other keys and
names a tool of the request: any other JSON is an answer. Semicolons separate several calls.
"""

from __future__ import annotations

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import marker_parser
from jan_serve.chat.parsers.python_calls import PythonCalls
from jan_serve.chat.text_stream import Steps

TAG = "<|python_tag|>"

_objects = JsonCalls(known_only=True)
_python = PythonCalls(known_only=True, suffix=".call")


def _read_calls(context: ParseContext, marker: str) -> Steps[None]:
    """JSON objects; or Python calls in a list or after the tag, which Llama 3.2 writes on request."""
    stream = context.stream
    yield from stream.skip_space()
    first = yield from stream.peek(1)
    if first == "[" or (marker == TAG and first != "{"):
        yield from _python(context, marker)
    else:
        yield from _objects(context, marker)


LLAMA3 = ChatFormat(
    name="llama3",
    signature=Signature(all_of=("<|start_header_id|>", '"parameters": ')),
    parse=marker_parser(_read_calls, TAG, first=_read_calls),
    calls=CallLayout(
        call=('{"name": "', Slot.NAME, '", "parameters": ', Slot.ARGUMENTS, "}"),
        separator="; ",
        triggers=('{"name": "',),
        at_start=True,
        confirmed_by='"',
        parallel=False,
    ),
    special_tokens=(TAG,),
)
