"""OpenAI gpt-oss: messages on channels (the Harmony format). analysis is thought, final is text, commentary is
either the text before a call or, with a recipient, a call.

Source: OpenAI's Harmony specification and the model's chat template. The recipient may stand before
or behind the channel.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.formats.format import ChatFormat, Marks, Reading, Thought
from jan_serve.chat.formats.layout import CallLayout, Slot
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.messages import TEXT, THOUGHT, Kind, MessageSyntax, Route, messages_answer
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

START = "<|start|>assistant"
CHANNEL = "<|channel|>"
BODY = "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")

_RECIPIENT: Final = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_NOT_TOOLS: Final = frozenset({"assistant", "user", "all"})


def _route(header: str) -> Route:
    recipients = [name for name in _RECIPIENT.findall(header) if name not in _NOT_TOOLS]
    if recipients:
        return Route(Kind.CALL, recipients[-1])
    # The 20B model writes a channel without a message before the real one at times: the last one counts.
    channels = _CHANNEL.findall(header)
    return THOUGHT if channels and channels[-1] == "analysis" else TEXT


def _read_call(reading: Reading, recipient: str) -> Steps[None]:
    stream, out = reading.stream, reading.out
    yield from stream.skip_space()
    if (yield from stream.peek(1)) != "{":
        reading.release()
        return
    reading.open_call(recipient)
    if not (yield from copy_json(stream, out.arguments)) and not stream.at_end:
        yield from stream.until(marker_set(*ENDS), out.arguments)


GPT_OSS = ChatFormat(
    name="gpt-oss",
    marks=Marks(all_of=(CHANNEL, BODY, "<|start|>")),
    read=messages_answer(
        MessageSyntax(
            start=START,
            heads=(CHANNEL, " to=", "to=", "<|constrain|>", BODY),
            body=BODY,
            ends=ENDS,
            route=_route,
            read_call=_read_call,
        )
    ),
    calls=CallLayout(
        call=(
            CHANNEL + "commentary to=functions.",
            Slot.NAME,
            " <|constrain|>json" + BODY,
            Slot.ARGUMENTS,
            "<|call|>",
        ),
        triggers=(CHANNEL + "commentary to=functions.", CHANNEL + "analysis to=functions.", " to=functions."),
        after_thought=START,
        parallel=False,
    ),
    text_opens=CHANNEL + "final" + BODY,
    thought=Thought(opens=(CHANNEL + "analysis" + BODY,), closes=("<|end|>",)),
    special_tokens=(CHANNEL, BODY, "<|start|>", "<|end|>", "<|constrain|>"),
    thought_field="thinking",
)
