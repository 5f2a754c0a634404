"""Reads streams of Anthropic's Messages API as its clients do, and checks their order."""

from __future__ import annotations

import json
from typing import Any, Final

Event = dict[str, Any]

_GROWS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""The block and the field of each kind of delta."""


def events_of(body: str) -> list[Event]:
    """The events of a body; `event:` has to equal the type in the data."""
    events: list[Event] = []
    for block in body.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event: Event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def replayed(events: list[Event]) -> Event:
    """The message that the events of a whole stream add up to. Blocks must not overlap."""
    kept = [event for event in events if event["type"] != "ping"]
    assert [event["type"] for event in kept].count("message_start") == 1
    assert [event["type"] for event in kept[-2:]] == ["message_delta", "message_stop"]
    message: Event = kept[0]["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    is_open = False
    for event in kept[1:-2]:
        content: list[Event] = message["content"]
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(content)
                content.append(dict(event["content_block"]))
                is_open = True
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(content) - 1
                _grow(content[-1], event["delta"])
            case kind:
                assert (kind, event["index"], is_open) == ("content_block_stop", len(content) - 1, True)
                is_open = False
    assert not is_open
    for block in message["content"]:
        if "partial_json" in block:
            block["input"] = json.loads(block.pop("partial_json"))
    return {**message, **kept[-2]["delta"], "usage": kept[-2]["usage"]}


def _grow(block: Event, delta: Event) -> None:
    kind, field = _GROWS[delta["type"]]
    assert block["type"] == kind
    assert delta[field]
    block[field] = block.get(field, "") + delta[field]
