"""Answers of several messages, each with a header that names its kind or its recipient.

- Functionary v3.2: `>>>` and a recipient; the prompt ends with the first `>>>`, and text goes to the recipient `all`.
- Muse Glimmer: calls are invoke and parameter elements in messages to a tool.
- OpenAI gpt-oss, the Harmony format: messages on channels. `analysis` is thought, `final` is text, and `commentary` is
  a call if it has a recipient, else text before a call. The recipient comes before or after the channel.

Source: the models' chat templates, and OpenAI's Harmony specification.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.chat.call_layout import CallLayout, TaggedArguments, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, StreamParser, Thought
from jan_serve.chat.formats.elements import invocations
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.message_parser import TEXT, THOUGHT, Kind, MessageParser, Route
from jan_serve.chat.text_stream import NAME, Sink, Steps, discard
from jan_serve.text.markers import marker_set

_START: Final = "<|start|>assistant"
_CHANNEL: Final = "<|channel|>"
_BODY: Final = "<|message|>"

_HARMONY_RECIPIENT: Final = re.compile(r"\bto=(functions\.)?([^\s<]+)")
_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_NOT_TOOLS: Final = frozenset({"assistant", "user", "all"})


def harmony_route(header: str) -> Route:
    # The 20B model sometimes writes a channel without a message before the real one: the last one counts.
    channels = _CHANNEL_NAME.findall(header)
    kind = Kind.THOUGHT if channels and channels[-1] == "analysis" else Kind.TEXT
    recipients = [
        found for found in _HARMONY_RECIPIENT.findall(header) if found[0] or found[1] not in _NOT_TOOLS
    ]
    if not recipients:
        return Route(kind)
    prefix, name = recipients[-1]
    # Others are the model's built-in tools, such as `python`, unless the request has a tool of that name.
    return Route(Kind.CALL if prefix else kind, name)


def _read_harmony_call(context: StreamParser, recipient: str) -> Steps[Sink | None]:
    stream, out = context.stream, context.out
    yield from stream.skip_space()
    if (yield from stream.peek(1)) != "{":
        return None
    context.open_call(recipient)
    whole = yield from copy_json(stream, out.arguments)
    return discard if whole else out.arguments


_TRIGGERS: Final = (
    *(f"{_CHANNEL}{channel} to=functions." for channel in ("commentary", "analysis")),
    " to=functions.",
)
_AFTER_CHANNEL: Final = parts(f"$NAME <|constrain|>json{_BODY}$ARGUMENTS<|call|>")
_RECIPIENT_FIRST: Final = CallLayout(
    call=parts(f" to=functions.$NAME{_CHANNEL}commentary json{_BODY}$ARGUMENTS<|call|>"),
    triggers=_TRIGGERS,
    other_headers=tuple((trigger, _AFTER_CHANNEL) for trigger in _TRIGGERS[:2]),
    after_thought=_START,
    parallel=False,
)
"""The form of the model's template. The model writes the channel first as well."""

GPT_OSS = ChatFormat(
    name="gpt-oss",
    signature=Signature(all_of=(_CHANNEL, _BODY, "<|start|>")),
    parse=MessageParser(
        start="<|start|>",
        role="assistant",
        heads=(_CHANNEL, " to=", "to=", "<|constrain|>", _BODY),
        body=_BODY,
        ends=("<|end|>", "<|call|>", "<|return|>"),
        resumes=(_CHANNEL,),
        strays=("<|constrain|>",),
        route=harmony_route,
        read_call=_read_harmony_call,
    ),
    calls=CallLayout(
        call=(_TRIGGERS[0], *_AFTER_CHANNEL), triggers=_TRIGGERS, after_thought=_START, parallel=False
    ),
    other_calls=(_RECIPIENT_FIRST,),
    text_opens=_CHANNEL + "final" + _BODY,
    text_before_calls_opens=_CHANNEL + "commentary" + _BODY,
    thought=Thought(
        opens=(_CHANNEL + "analysis" + _BODY, _START + _CHANNEL + "analysis" + _BODY), closes=("<|end|>",)
    ),
    special_tokens=(_CHANNEL, _BODY, "<|start|>", "<|end|>", "<|constrain|>"),
    thought_field="thinking",
)

_OPEN, _CLOSE = "<atem:function_calls>", "</atem:function_calls>"
_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_elements = invocations("atem:", _CLOSE)


def _muse_route(header: str) -> Route:
    match = _RECIPIENT.search(header)
    if match is None or match.group(1) == "user":
        return TEXT
    return THOUGHT if match.group(1) == "self" else Route(Kind.CALL, match.group(1))


def _read_muse_call(context: StreamParser, recipient: str) -> Steps[Sink | None]:
    del recipient  # the element names the tool
    before = context.out.calls
    yield from context.stream.skip_space()
    if not (yield from context.stream.accept(_OPEN)):
        return None
    yield from _elements(context, _OPEN)
    return discard if context.out.calls > before else context.out.text


MUSE_GLIMMER = ChatFormat(
    name="muse-glimmer",
    signature=Signature(all_of=(_OPEN, "<|eom|>")),
    parse=MessageParser(
        start="<|start|>",
        role="assistant",
        heads=(" to=", _BODY),
        body=_BODY,
        ends=("<|eom|>", "<|eot|>"),
        route=_muse_route,
        read_call=_read_muse_call,
    ),
    calls=CallLayout(
        call=parts(
            f' to=$NAME{_BODY}{_OPEN}\n<atem:invoke name="$NAME">\n$ARGUMENTS</atem:invoke>\n{_CLOSE}'
        ),
        separator="<|eom|>" + _START,
        after_thought=_START,
        arguments=TaggedArguments(parts('<atem:parameter name="$KEY">$VALUE</atem:parameter>\n')),
        triggers=(_OPEN,),
    ),
    text_opens=" to=user" + _BODY,
    thought=Thought(opens=(" to=self" + _BODY,), closes=("<|eom|>",)),
    special_tokens=("<|start|>", _BODY, "<|eom|>", "<|eot|>"),
)

_MESSAGE = ">>>"


def _read_functionary(context: StreamParser) -> Steps[None]:
    stream = context.stream
    stream.record()
    yield from stream.accept(_MESSAGE)
    while True:
        yield from _read_message(context)
        if (yield from stream.read_until(marker_set(_MESSAGE), context.out.text)) is None:
            return
        stream.record(_MESSAGE)


def _read_message(context: StreamParser) -> Steps[None]:
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
    parse=_read_functionary,
    calls=CallLayout(
        call=parts("$NAME\n$ARGUMENTS"), separator=_MESSAGE, triggers=(_MESSAGE,), confirmed_by="\n"
    ),
    text_opens="all\n",
    thought=None,
)
