"""OpenAI gpt-oss, the Harmony format: messages on channels. `analysis` is thought, `final` is text, and `commentary` is
a call if it has a recipient, else text before a call.

Source: OpenAI's Harmony specification and the model's chat template. The recipient comes before or after the channel.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.call_layout import CallLayout, Slot
from jan_serve.chat.chat_format import ChatFormat, ParseContext, Signature, Thought
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.message_parser import Kind, MessageParser, Route
from jan_serve.chat.text_stream import Sink, Steps, discard

START = "<|start|>assistant"
CHANNEL = "<|channel|>"
BODY = "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")

_RECIPIENT: Final = re.compile(r"\bto=(functions\.)?([^\s<]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_NOT_TOOLS: Final = frozenset({"assistant", "user", "all"})


def _route(header: str) -> Route:
    # The 20B model sometimes writes a channel without a message before the real one: the last one counts.
    channels = _CHANNEL.findall(header)
    kind = Kind.THOUGHT if channels and channels[-1] == "analysis" else Kind.TEXT
    recipients = [found for found in _RECIPIENT.findall(header) if found[0] or found[1] not in _NOT_TOOLS]
    if not recipients:
        return Route(kind)
    prefix, name = recipients[-1]
    # Others are the model's built-in tools, such as `python`, unless the request has a tool of that name.
    return Route(Kind.CALL if prefix else kind, name)


def _read_call(context: ParseContext, recipient: str) -> Steps[Sink | None]:
    stream, out = context.stream, context.out
    yield from stream.skip_space()
    if (yield from stream.peek(1)) != "{":
        return None
    context.open_call(recipient)
    whole = yield from copy_json(stream, out.arguments)
    return discard if whole else out.arguments


_TRIGGERS: Final = (
    CHANNEL + "commentary to=functions.",
    CHANNEL + "analysis to=functions.",
    " to=functions.",
)
_AFTER_CHANNEL: Final = (Slot.NAME, " <|constrain|>json" + BODY, Slot.ARGUMENTS, "<|call|>")
_RECIPIENT_FIRST: Final = CallLayout(
    call=(" to=functions.", Slot.NAME, CHANNEL + "commentary json" + BODY, Slot.ARGUMENTS, "<|call|>"),
    triggers=_TRIGGERS,
    other_headers=tuple((trigger, _AFTER_CHANNEL) for trigger in _TRIGGERS[:2]),
    after_thought=START,
    parallel=False,
)
"""The form of the model's template. The model writes the channel first as well."""

GPT_OSS = ChatFormat(
    name="gpt-oss",
    signature=Signature(all_of=(CHANNEL, BODY, "<|start|>")),
    parse=MessageParser(
        start="<|start|>",
        role="assistant",
        heads=(CHANNEL, " to=", "to=", "<|constrain|>", BODY),
        body=BODY,
        ends=ENDS,
        resumes=(CHANNEL,),
        strays=("<|constrain|>",),
        route=_route,
        read_call=_read_call,
    ),
    calls=CallLayout(
        call=(_TRIGGERS[0], *_AFTER_CHANNEL), triggers=_TRIGGERS, after_thought=START, parallel=False
    ),
    other_calls=(_RECIPIENT_FIRST,),
    text_opens=CHANNEL + "final" + BODY,
    text_before_calls_opens=CHANNEL + "commentary" + BODY,
    thought=Thought(
        opens=(CHANNEL + "analysis" + BODY, START + CHANNEL + "analysis" + BODY), closes=("<|end|>",)
    ),
    special_tokens=(CHANNEL, BODY, "<|start|>", "<|end|>", "<|constrain|>"),
    thought_field="thinking",
)
