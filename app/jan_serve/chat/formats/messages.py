"""Answers of several messages, each with a header that names its kind or its recipient.

- Functionary v3.2: `>>>` and a recipient; the prompt ends with the first `>>>`, and text goes to the recipient `all`.
- Muse Glimmer: calls are invoke and parameter elements in messages to a tool.
- OpenAI gpt-oss, the Harmony format: messages on channels. `analysis` is thought, `final` is text, and `commentary` is
  a call if it has a recipient, else text before a call. The recipient comes before or after the channel.

Source: the models' chat templates, and OpenAI's Harmony specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from jan_serve.chat.call_layout import CallLayout, TaggedArguments, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, StreamParser, Thought
from jan_serve.chat.formats.elements import invocations
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.text_stream import NAME, Sink, Steps, discard
from jan_serve.text.markers import marker_set


class Kind(Enum):
    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"


class Route(msgspec.Struct, frozen=True):
    """The kind of a message. recipient: whom it names; a message to a tool of the request is a call in any case."""

    kind: Kind
    recipient: str = ""


TEXT: Final = Route(Kind.TEXT)
THOUGHT: Final = Route(Kind.THOUGHT)


class MessageParser(msgspec.Struct, frozen=True, kw_only=True):
    """The parser of a format of messages with these markers. A damaged message costs nothing of those after it.

    start: begins every message, with the role; for the first one, the prompt contains both. heads: the possible
    beginnings of the rest of a header; an answer that begins otherwise is the text of a message that the prompt began.
    body: ends a header. ends: end a message. resumes: those of `heads` that begin a header in the middle of a body too.
    strays: markers of headers without meaning in a body. route: parses a header. read_call: parses a call's body, and
    returns what receives the rest of it; None, with the recording still in progress, if it is not a call.
    """

    start: str
    role: str = ""
    heads: tuple[str, ...]
    body: str
    ends: tuple[str, ...]
    resumes: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    route: Callable[[str], Route]
    read_call: Callable[[StreamParser, str], Steps[Sink | None]]

    def __call__(self, context: StreamParser) -> Steps[None]:
        return _Reader(self, context).read()


class _Reader:
    def __init__(self, syntax: MessageParser, context: StreamParser) -> None:
        self._syntax = syntax
        self._context = context
        self._begins = (syntax.start, *syntax.resumes)
        self._header_ends = marker_set(syntax.body, syntax.start, *syntax.ends)
        self._body_ends = marker_set(syntax.body, *syntax.strays, *self._begins, *syntax.ends)

    def read(self) -> Steps[None]:
        context = self._context
        begun: str | None = None
        if context.starts_in_thought:
            begun = yield from self._read_body(THOUGHT)
        while begun is not None or not context.stream.at_end:
            begun = yield from self._read_message(begun)

    def _read_message(self, begun: str | None) -> Steps[str | None]:
        """Read a message. begun: its first marker, if that is read already. Returns that of the next message."""
        context, stream, syntax = self._context, self._context.stream, self._syntax
        stream.record(begun or "")
        if begun is None:
            begun = yield from stream.accept(syntax.start)
        head = begun
        if begun == syntax.start:
            yield from stream.accept(syntax.role)
        elif begun is None:
            head = yield from stream.accept(*syntax.heads)
            if head is None:
                context.release()
                return (yield from self._read_rest(context.out.text))
        pieces = [head or ""]
        end = head
        if head != syntax.body:
            end = yield from stream.read_until(self._header_ends, pieces.append)
        header = "".join(pieces).removeprefix(syntax.start)
        if end != syntax.body:
            stream.stop_recording()  # a header without a body means nothing
            return end if end in self._begins else None
        route = syntax.route(header)
        if context.tools and (route.kind is Kind.CALL or route.recipient in context.tools):
            return (yield from self._read_call(route.recipient))
        return (yield from self._read_body(route, stream.stop_recording()))

    def _read_call(self, recipient: str) -> Steps[str | None]:
        context = self._context
        context.stream.record()
        rest = yield from self._syntax.read_call(context, recipient)
        if rest is None:
            context.out.break_text()
            context.release()
            rest = context.out.text
        return (yield from self._read_rest(rest))

    def _read_body(self, route: Route, header: str = "") -> Steps[str | None]:
        context, out = self._context, self._context.out
        if route.kind is not Kind.THOUGHT:
            out.break_text()
            return (yield from self._read_rest(out.text))
        if not context.split_thoughts:
            out.text(header)
            end = yield from context.stream.read_until(self._body_ends, out.text)
            begins = end in self._begins
            out.text("" if begins else end or "")
            return end if begins else None
        out.open_thought()
        begun = yield from self._read_rest(out.text)
        if begun is not None or not context.stream.at_end:
            out.close_thought()
        return begun

    def _read_rest(self, sink: Sink) -> Steps[str | None]:
        """Read a body up to its end. Returns the marker that ended it, if that one begins the next message."""
        end: str | None = self._syntax.body
        while end == self._syntax.body or end in self._syntax.strays:
            end = yield from self._context.stream.read_until(self._body_ends, sink)
        return end if end in self._begins else None


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
