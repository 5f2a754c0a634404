"""Llama 3.1 to 4, xLAM, LFM2, Olmo 3 and others write calls in Python's notation or as JSON without a marker.

Source: the models' chat templates and Meta's prompt format pages. A call of Llama is the whole answer, one JSON
object without a marker, or after `<|python_tag|>`. An object is a call only if it has no other keys and names a tool
of the request: any other JSON is an answer. Semicolons separate several calls; Llama 4 writes them without any. Where
the template asks for a list, the whole answer is one: of Python calls (Llama 4, Gemma 3, ToolACE), or of JSON objects
(xLAM). LFM2 writes Python calls in a list, between markers; LFM2.5 writes true, false and null as in JSON. Olmo 3 and
MiniCPM3 write one Python call a line, between markers.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from jan_serve.chat.call_layout import CallLayout, PythonArguments, listed, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, StreamParser, Thought
from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.literals import copy_literal
from jan_serve.chat.parsers.marked_calls import JsonCalls, MarkerParser
from jan_serve.chat.text_stream import NAME, Steps, TextStream

_KEY: Final = re.compile(r"[^\s=,:()\[\]{}'\"<]*")


class PythonCalls(msgspec.Struct, frozen=True, kw_only=True):
    """closers: end the calls. suffix: an optional suffix of the name. known_only: a call of an unknown tool is text.

    or_json: the syntax of JSON calls in place of Python calls. lines: a call may follow on the next line.
    """

    closers: tuple[str, ...] = ()
    suffix: str = ""
    known_only: bool = False
    or_json: JsonCalls | None = None
    lines: bool = False

    def __call__(self, context: StreamParser, marker: str) -> Steps[None]:
        stream = context.stream
        yield from stream.skip_space()
        in_list = (yield from stream.accept("[")) is not None
        yield from stream.skip_space()
        if self.or_json is not None and (yield from stream.peek(1)) == "{":
            yield from self.or_json(context, "[" if in_list else marker)
            return
        any_call = False
        while not any_call or (yield from self._has_another(context, in_list)):
            yield from stream.skip_space()
            begun_name = yield from self._read_call(context)
            if begun_name is not None:
                context.release(begun_name if self.known_only else "", self.suffix)
                return
            any_call = True
            stream.record()
            yield from stream.skip_space()
        if in_list:
            yield from stream.accept("]")
            yield from stream.skip_space()
        stream.stop_recording()
        yield from stream.accept(*self.closers)

    def _has_another(self, context: StreamParser, in_list: bool) -> Steps[bool]:
        if in_list:
            return (yield from context.stream.accept(",")) is not None
        next_one = yield from context.stream.peek(1)
        return self.lines and re.match(r"[^\W\d]", next_one) is not None

    def _read_call(self, context: StreamParser) -> Steps[str | None]:
        """Read `name(…)`. If it is not a call, nothing is announced, and what may begin its name is returned."""
        stream, out = context.stream, context.out
        begun_name = yield from stream.take_matching(NAME)
        name = begun_name.removesuffix(self.suffix)
        if not name or (self.known_only and name not in context.tools) or not (yield from stream.accept("(")):
            return begun_name
        context.open_call(name)
        out.arguments("{")
        malformed = yield from _read_arguments(stream, ObjectWriter(out.arguments))
        if malformed is None:
            out.arguments("}")
        else:
            yield from context.pass_rest(self.closers, malformed)
        return None


def _read_arguments(stream: TextStream, members: ObjectWriter) -> Steps[str | None]:
    """Read keyword arguments up to the closing bracket. If they are malformed or the text ends, returns what is read of
    the next one."""
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(")")):
            return None
        key = yield from stream.take_matching(_KEY)
        yield from stream.skip_space()
        if not key or not (yield from stream.accept("=")):
            return key
        yield from stream.skip_space()
        value = members.begin(f'"{json_escaped(key)}"')
        value(": ")
        if not (yield from copy_literal(stream, value)):
            return ""
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != ")":
            return ""


_TAG: Final = "<|python_tag|>"

_objects = JsonCalls(known_only=True)
_python = PythonCalls(known_only=True, suffix=".call", or_json=_objects)


def _read_answer(context: StreamParser, marker: str) -> Steps[None]:
    """JSON objects; or Python calls in a list or after the tag, which Llama 3.2 writes on request."""
    yield from context.stream.skip_space()
    first = yield from context.stream.peek(1)
    is_python = first == "[" or (marker == _TAG and first != "{")
    yield from (_python if is_python else _objects)(context, marker)


_UNMARKED = MarkerParser(_read_answer, (_TAG,), first=_read_answer)

LLAMA3 = ChatFormat(
    name="llama3",
    signature=Signature(all_of=("<|start_header_id|>", '"parameters": ')),
    parse=_UNMARKED,
    calls=CallLayout(
        call=parts('{"name": "$NAME", "parameters": $ARGUMENTS}'),
        separator="; ",
        triggers=('{"name": "',),
        at_start=True,
        confirmed_by='"',
        parallel=False,
    ),
    special_tokens=(_TAG,),
)

_LIST_EXAMPLE: Final = "[func_name1(params_name1=params_value1"
_MARKS: Final = ("<|python_start|>", "<|python_end|>")
"""Calls follow either: the first opens a list, the second ends a text that the template puts before them."""

LLAMA4 = replace(
    LLAMA3,
    name="llama4",
    signature=Signature(all_of=("<|header_start|>",), none_of=(_LIST_EXAMPLE,)),
    parse=replace(_UNMARKED, openers=_MARKS),
    calls=replace(LLAMA3.calls, separator="", parallel=True),
    thought=None,
    special_tokens=_MARKS,
)


PYTHON_LIST = ChatFormat(
    name="python-list",
    signature=Signature(all_of=(_LIST_EXAMPLE,)),
    parse=LLAMA4.parse,
    calls=replace(
        listed("$NAME($ARGUMENTS)", arguments=PythonArguments()),
        triggers=("[",),
        at_start=True,
        confirmed_by="(",
    ),
    special_tokens=_MARKS,
)

XLAM = ChatFormat(
    name="xlam",
    signature=Signature(all_of=('[{"name": "tool_call_name", "arguments": {',)),
    parse=_UNMARKED,
    calls=replace(
        listed('{"name": "$NAME", "arguments": $ARGUMENTS}'),
        triggers=('[{"name": "',),
        at_start=True,
        confirmed_by='"',
    ),
)

_LFM = ("<|tool_call_start|>", "<|tool_call_end|>")

LFM2 = ChatFormat(
    name="lfm2",
    signature=Signature(any_of=(_LFM[0], "<|tool_list_start|>", '"List of tools: ["')),
    parse=MarkerParser(PythonCalls(closers=_LFM[1:], or_json=JsonCalls(closers=_LFM[1:])), _LFM[:1]),
    calls=listed("$NAME($ARGUMENTS)", *_LFM, PythonArguments(json_words=True)),
    thought=Thought(ends=_LFM[:1]),
    special_tokens=(*_LFM, "<think>", "</think>"),
    thought_field="thinking",
)


def _lines(name: str, signature: Signature, opening: str, closing: str, thought: Thought) -> ChatFormat:
    """One Python call a line, between two markers, which may have line breaks of their own."""
    return ChatFormat(
        name=name,
        signature=signature,
        parse=MarkerParser(PythonCalls(closers=(closing.lstrip(),), lines=True), (opening,)),
        calls=CallLayout(
            opening=opening,
            call=parts("$NAME($ARGUMENTS)"),
            separator="\n",
            closing=closing,
            arguments=PythonArguments(json_words=True),
            triggers=(opening,),
        ),
        thought=replace(thought, ends=(opening,)),
        special_tokens=(opening.split("\n")[0], closing.split("\n")[-1], *thought.opens, *thought.closes),
    )


OLMO3 = _lines(
    "olmo3", Signature(all_of=("<function_calls>",)), "<function_calls>", "</function_calls>", Thought()
)

MINICPM3 = _lines(
    "minicpm3",
    Signature(all_of=(_LFM[0], "```python")),
    f"{_LFM[0]}\n```python\n",
    f"\n```\n{_LFM[1]}",
    Thought(opens=("<|thought_start|>",), closes=("<|thought_end|>",)),
)
