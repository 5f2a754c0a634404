"""Parts of items that an answer in `tests/contract/openai` does not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.core.events import TokenInfo
from jan_serve.dialects.openai.responses.items import (
    CallWriter,
    MessageWriter,
    Place,
    ThoughtWriter,
)
from jan_serve.dialects.openai.responses.tools import Callee
from jan_serve.dialects.shared.thinking_fields import THOUGHT

PLACE = Place("resp_1", 3)


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


def test_an_empty_piece_is_no_event() -> None:
    for writer in (
        MessageWriter(PLACE, logprobs=True),
        ThoughtWriter(PLACE, as_summary=True, packed=False),
        CallWriter(PLACE, Callee("f"), "c"),
        CallWriter(PLACE, Callee("f", custom=True), "c"),
    ):
        assert list(writer.more("")) == []


def test_a_packed_thought_comes_back() -> None:
    writer = ThoughtWriter(PLACE, as_summary=True, packed=True)
    list(writer.more("hm"))
    assert THOUGHT.unpacked(writer.item("completed").get("encrypted_content") or "") == "hm"


def test_arguments_of_another_form_are_the_input_at_the_end() -> None:
    writer = CallWriter(PLACE, Callee("patch", custom=True), "c")
    events: list[Any] = [*writer.more("just"), *writer.more(" text"), *writer.closing("completed")]
    assert [event["type"].removeprefix("response.") for event in events] == [
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert (events[0]["delta"], events[1]["input"], events[2]["item"]["input"]) == ("just text",) * 3
