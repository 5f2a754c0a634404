"""Llama 3.1 to 3.3: a call is the whole answer, one JSON object without any marker, or behind `<|python_tag|>`.

Source: the models' chat templates and Meta's prompt format pages. As any JSON answer could look like one, an object is
a call only when it has no other keys and names a tool of the request. Several are parted by semicolons.
"""

from __future__ import annotations

from jan_serve.chat.formats.format import ChatFormat, Marks, Reading
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.python_calls import PythonCalls
from jan_serve.chat.text_stream import Steps

TAG = "<|python_tag|>"

_objects = JsonCalls(known_only=True).reader()
_python = PythonCalls(known_only=True, suffix=".call").reader()


def _read_calls(reading: Reading, marker: str) -> Steps[None]:
    """JSON objects; or, as Llama 3.2 writes them when it is asked to, Python calls in a list or behind the tag."""
    stream = reading.stream
    yield from stream.skip_space()
    first = yield from stream.peek(1)
    if first == "[" or (marker == TAG and first != "{"):
        yield from _python(reading, marker)
    else:
        yield from _objects(reading, marker)


LLAMA3 = ChatFormat(
    name="llama3",
    marks=Marks(all_of=("<|start_header_id|>", '"parameters": ')),
    read=marked_answer(_read_calls, TAG, first=_read_calls),
    calls=CallLayout(
        call=('{"name": "', Slot.NAME, '", "parameters": ', Slot.ARGUMENTS, "}"),
        separator="; ",
        triggers=('{"name": "',),
        at_start=True,
        parallel=False,
    ),
    special_tokens=(TAG,),
)
