"""Parses answers for tests, cut in every way, and folds the deltas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.core.events import ReasoningDelta, TextDelta, ToolCallDelta
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from tests.support.drawn_grid import some

WEATHER = Tool(
    name="get_weather",
    description="The weather of a city",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name"},
            "days": {"type": "integer", "description": "How many"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
ADD = Tool(
    name="add",
    description="Adds numbers",
    parameters={
        "type": "object",
        "properties": {
            "values": {"type": "array", "items": {"type": "number"}, "description": "The numbers"},
            "opts": {"type": "object", "description": "Options", "additionalProperties": {}},
        },
        "required": ["values"],
        "additionalProperties": False,
    },
)
NOW = Tool(
    name="now", description="The time", parameters={"type": "object", "properties": {}, "required": []}
)
TOOLS = (WEATHER, ADD, NOW)


class Call(NamedTuple):
    """A call as a client sees it in the end."""

    name: str
    arguments: str


class Answer(NamedTuple):
    """An answer as a client sees it in the end; `order` is what came after what."""

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    order: tuple[str, ...]

    def values(self) -> list[tuple[str, Any]]:
        """Names and argument values of the calls; fails where arguments are no JSON."""
        return [(call.name, json.loads(call.arguments)) for call in self.calls]


def call(name: str, arguments: object, call_id: str = "abcdefghi") -> ToolCall:
    """A call with these arguments, as a history has it."""
    return ToolCall(call_id, FunctionCall(name, json.dumps(arguments, ensure_ascii=False)))


def parse(
    chat_format: ChatFormat,
    pieces: Iterable[str],
    *,
    tools: Sequence[Tool] = TOOLS,
    split_thoughts: bool = True,
    starts_in_thought: bool = False,
    cut: bool = False,
) -> Answer:
    """Fold the deltas of an answer that comes in these pieces, and check what every stream must keep."""
    made: list[str] = []

    def new_id(name: str, own_id: str) -> str:
        del own_id
        made.append(f"id-{len(made)}-{name}")
        return made[-1]

    parser = StreamParser(
        chat_format,
        new_id,
        index=3,
        tools=tools,
        split_thoughts=split_thoughts,
        starts_in_thought=starts_in_thought,
    )
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish(cut=cut)
    text: list[str] = []
    reasoning: list[str] = []
    names: list[str] = []
    arguments: list[list[str]] = []
    order: list[str] = []
    for delta in deltas:
        assert delta.index == 3
        match delta:
            case TextDelta():
                text.append(delta.text)
                kind = "text"
            case ReasoningDelta():
                reasoning.append(delta.text)
                kind = "reasoning"
            case ToolCallDelta(call_index=call_index):
                if call_index == len(names):
                    assert delta.id == made[call_index], "the id comes with the first fragment"
                    assert delta.name, "the name comes with the first fragment"
                    names.append(delta.name)
                    arguments.append([])
                else:
                    assert (delta.id, delta.name) == (None, None), "id and name come once"
                    assert call_index == len(names) - 1, "calls do not mix"
                arguments[-1].append(delta.arguments)
                kind = f"call {call_index}"
        if not order or order[-1] != kind:
            order.append(kind)
    assert parser.calls == len(names) == len(made)
    calls = tuple(Call(name, "".join(parts)) for name, parts in zip(names, arguments, strict=True))
    return Answer("".join(text), "".join(reasoning), calls, tuple(order))


def cuts(text: str) -> Iterator[list[str]]:
    """`text` whole, by characters, and in two pieces at places of which `make test` draws a quarter."""
    yield [text]
    yield list(text)
    for at in some(range(1, len(text)), 8 + len(text) // 4):
        yield [text[:at], text[at:]]


def parse_everywhere(
    chat_format: ChatFormat,
    text: str,
    *,
    tools: Sequence[Tool] = TOOLS,
    split_thoughts: bool = True,
    starts_in_thought: bool = False,
) -> Answer:
    """The answer, checked to be the same however its text is cut."""
    whole: Answer | None = None
    for pieces in cuts(text):
        answer = parse(
            chat_format,
            pieces,
            tools=tools,
            split_thoughts=split_thoughts,
            starts_in_thought=starts_in_thought,
        )
        if whole is None:
            whole = answer
        assert answer == whole, f"cut as {pieces}"
    assert whole is not None
    return whole
