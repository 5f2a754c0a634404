"""MeetKai Functionary: v3.1 `<function=NAME>{…}</function>`; v3.2 messages that begin with `>>>` and a recipient.

Source: the models' chat templates. In v3.2 the prompt ends with the first `>>>`, and text goes to the recipient `all`.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.formats.format import ChatFormat, Marks, Reading
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.marked import marked_answer
from jan_serve.chat.parsers.named_calls import NamedCalls
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

_OPEN = "<function="
_CLOSE = "</function>"

FUNCTIONARY_V3_1 = ChatFormat(
    name="functionary-v3.1",
    marks=Marks(all_of=(_OPEN, _CLOSE), none_of=("<parameter=", "<tool_call>")),
    read=marked_answer(NamedCalls(arguments=(">",), closers=(_CLOSE,)).reader(), _OPEN),
    calls=CallLayout(
        call=(_OPEN, Slot.NAME, ">", Slot.ARGUMENTS, _CLOSE),
        triggers=(_OPEN,),
    ),
)

RECIPIENT = ">>>"
_NAME: Final = re.compile(r"[\w.\-]*")


def _read_v3_2(form: ChatFormat, reading: Reading) -> Steps[None]:
    del form
    stream, out = reading.stream, reading.out
    marks = marker_set(RECIPIENT)
    stream.record()
    yield from stream.accept(RECIPIENT)
    while True:
        yield from _read_message(reading)
        if (yield from stream.until(marks, out.text)) is None:
            return
        stream.record(RECIPIENT)


def _read_message(reading: Reading) -> Steps[None]:
    """A message behind the mark, up to where its text begins, or the whole call."""
    stream = reading.stream
    pieces: list[str] = []
    yield from stream.run(_NAME, pieces.append)
    name = "".join(pieces)
    if (name != "all" and name not in reading.tools) or not (yield from stream.accept("\n")):
        reading.release()
    elif name == "all" and name not in reading.tools:
        stream.recorded()
        reading.out.break_text()
    elif (yield from stream.peek(1)) != "{":
        reading.release()
    else:
        reading.open_call(name)
        yield from copy_json(stream, reading.out.arguments)


FUNCTIONARY_V3_2 = ChatFormat(
    name="functionary-v3.2",
    marks=Marks(all_of=(">>>all",)),
    read=_read_v3_2,
    calls=CallLayout(
        call=(Slot.NAME, "\n", Slot.ARGUMENTS),
        separator=RECIPIENT,
        triggers=(RECIPIENT,),
    ),
    text_opens="all\n",
    thought=None,
)
