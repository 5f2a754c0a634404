"""Each kind of item: the events between its opening and its end, and the item that they add up to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.core.events import TokenInfo
from jan_serve.dialects.openai.responses.items import (
    CustomCallWriter,
    FunctionCallWriter,
    MessageWriter,
    OpenItem,
    ThoughtWriter,
)
from jan_serve.dialects.openai.responses.tools import Callee
from jan_serve.dialects.shared.packed_thoughts import unpacked_thought

Events = list[tuple[str, Any]]

PLACE = 3


def written(writer: OpenItem, *pieces: str, status: Any = "completed") -> tuple[Events, Any]:
    """Types of all events with what they carry of the text, and the finished item."""
    events: list[Any] = [*writer.opening()]
    for piece in pieces:
        events += writer.more(piece)
    events += writer.closing(status)
    item = events[-1]["item"]
    assert {event["output_index"] for event in events} == {PLACE}
    assert {event["item_id"] for event in events if "item_id" in event} <= {item["id"]}
    assert events[0]["item"]["id"] == item["id"]
    assert (events[0]["item"]["status"], item["status"]) == ("in_progress", status)
    assert writer.item(status) == item
    shown: Events = []
    for event in events[1:-1]:
        text = event["part"]["text"] if "part" in event else None
        for name in ("delta", "text", "arguments", "input"):
            text = event.get(name, text)
        shown.append((event["type"].removeprefix("response."), text))
    assert [events[0]["type"], events[-1]["type"]] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    return shown, item


def test_a_message() -> None:
    shown, item = written(MessageWriter(PLACE, logprobs=False), "a", "", "b", status="incomplete")
    assert shown == [
        ("content_part.added", ""),
        ("output_text.delta", "a"),
        ("output_text.delta", "b"),
        ("output_text.done", "ab"),
        ("content_part.done", "ab"),
    ]
    assert item["content"] == [{"type": "output_text", "text": "ab", "annotations": [], "logprobs": []}]
    assert (item["type"], item["role"]) == ("message", "assistant")


@pytest.mark.parametrize("wanted", [True, False])
def test_logprobs_of_a_message_are_there_on_request_alone(wanted: bool) -> None:
    tokens = (TokenInfo(1, b"\xc3", False, -0.5), TokenInfo(2, b"\xa9", False, -0.25))
    writer = MessageWriter(PLACE, logprobs=wanted)
    events = [*writer.opening(), *writer.more("", tokens[:1]), *writer.more("é", tokens[1:])]
    deltas: Any = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [event["delta"] for event in deltas] == (["", "é"] if wanted else ["é"])
    item: Any = writer.item("completed")
    found = [each["logprob"] for each in item["content"][0]["logprobs"]]
    assert found == ([-0.5, -0.25] if wanted else [])
    assert [each["logprob"] for event in deltas for each in event["logprobs"]] == found


def test_an_earlier_event_does_not_change_with_the_item() -> None:
    writer = MessageWriter(PLACE, logprobs=True)
    _, part = writer.opening()
    before = json.dumps(part)
    list(writer.more("a", (TokenInfo(1, b"a", False, -0.5),)))
    assert json.dumps(part) == before


@pytest.mark.parametrize(
    ("as_summary", "place", "kind"),
    [(True, "summary", "reasoning_summary_text"), (False, "content", "reasoning_text")],
)
def test_a_thought(as_summary: bool, place: str, kind: str) -> None:
    part = "reasoning_summary_part" if as_summary else "content_part"
    shown, item = written(ThoughtWriter(PLACE, as_summary=as_summary, packed=False), "h", "", "m")
    assert shown == [
        (f"{part}.added", ""),
        (f"{kind}.delta", "h"),
        (f"{kind}.delta", "m"),
        (f"{kind}.done", "hm"),
        (f"{part}.done", "hm"),
    ]
    text = "summary_text" if as_summary else "reasoning_text"
    assert item[place] == [{"type": text, "text": "hm"}]
    assert item["content" if as_summary else "summary"] == []
    assert "encrypted_content" not in item


def test_a_packed_thought_comes_back() -> None:
    _, item = written(ThoughtWriter(PLACE, as_summary=True, packed=True), "hm")
    assert unpacked_thought(item["encrypted_content"]) == "hm"


@pytest.mark.parametrize("namespace", [None, "mcp__docs__"])
def test_a_function_call(namespace: str | None) -> None:
    writer = FunctionCallWriter(PLACE, Callee("find", namespace), "call_1")
    shown, item = written(writer, '{"x":', "", "1}")
    assert shown == [
        ("function_call_arguments.delta", '{"x":'),
        ("function_call_arguments.delta", "1}"),
        ("function_call_arguments.done", '{"x":1}'),
    ]
    assert (item["type"], item["name"], item["call_id"]) == ("function_call", "find", "call_1")
    assert item["arguments"] == '{"x":1}'
    assert item.get("namespace") == namespace


ARGUMENTS = '{"input": "a\\"b\\u00e9\\n"}'


@pytest.mark.parametrize("cut", range(len(ARGUMENTS) + 1))
def test_the_input_of_a_custom_call_at_every_cut(cut: int) -> None:
    writer = CustomCallWriter(PLACE, Callee("patch", "space", custom=True), "call_1")
    shown, item = written(writer, ARGUMENTS[:cut], ARGUMENTS[cut:])
    *deltas, last = shown
    assert last == ("custom_tool_call_input.done", 'a"bé\n')
    assert "".join(text for _, text in deltas) == 'a"bé\n'
    assert {kind for kind, _ in deltas} == {"custom_tool_call_input.delta"}
    assert all(text for _, text in deltas)
    assert (item["type"], item["input"], item["namespace"]) == ("custom_tool_call", 'a"bé\n', "space")


def test_arguments_of_another_form_are_the_input_at_the_end() -> None:
    shown, item = written(CustomCallWriter(PLACE, Callee("patch", custom=True), "c"), "just", " text")
    assert shown == [
        ("custom_tool_call_input.delta", "just text"),
        ("custom_tool_call_input.done", "just text"),
    ]
    assert item["input"] == "just text"


def test_ids_differ_and_name_their_kind() -> None:
    callee = Callee("f")
    writers = [
        MessageWriter(PLACE, logprobs=False),
        ThoughtWriter(PLACE, as_summary=False, packed=False),
        FunctionCallWriter(PLACE, callee, "c"),
        CustomCallWriter(PLACE, callee, "c"),
        MessageWriter(PLACE, logprobs=False),
    ]
    ids = [writer.item("completed")["id"] for writer in writers]
    assert [each.partition("_")[0] for each in ids] == ["msg", "rs", "fc", "ctc", "msg"]
    assert len(set(ids)) == len(ids)
