"""Reads the stream of /v1/responses item by item and checks every rule of the protocol."""

from __future__ import annotations

import json
from typing import Any, Final

Event = dict[str, Any]

ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


def events_of(body: str) -> list[Event]:
    """The events of a body; `event:` has to equal the type in the data."""
    events: list[Event] = []
    for block in body.removesuffix("\n\n").split("\n\n"):
        if block.startswith(":"):
            continue
        name, data = block.split("\n")
        event: Event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def replayed(events: list[Event]) -> Event:
    """The last event's response, whose output has to equal the one assembled from the events before it."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert all(event["response"]["status"] == "in_progress" for event in events[:2])
    assert [event["type"] for event in events if event["type"] in ENDS] == [events[-1]["type"]]
    items = _Items()
    for event in events[2:-1]:
        items.take(event)
    final: Event = events[-1]["response"]
    assert final["id"] == events[0]["response"]["id"]
    assert events[-1]["type"] == f"response.{final['status']}"
    if final["status"] != "failed":
        assert items.open is None
        assert final["output"] == items.done
    return final


class _Items:
    """Assembles items."""

    def __init__(self) -> None:
        self.done: list[Event] = []
        self.open: Event | None = None
        self._part: Event | None = None

    def take(self, event: Event) -> None:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert self.open is None
            self.open = json.loads(json.dumps(event["item"]))
            assert event["item"]["status"] == "in_progress"
            assert event["output_index"] == len(self.done)
            return
        assert self.open is not None
        assert event["output_index"] == len(self.done)
        if kind == "output_item.done":
            assert event["item"] == {**self.open, "status": event["item"]["status"], **_packed(event["item"])}
            self.done.append(event["item"])
            self.open = None
            return
        assert event["item_id"] == self.open["id"]
        word, _, step = kind.rpartition(".")
        if word in ("content_part", "reasoning_summary_part"):
            self._take_part("content" if word == "content_part" else "summary", step, event)
        elif word in ("output_text", "reasoning_text", "reasoning_summary_text"):
            assert self._part is not None
            _grow(self._part, "text", step, event, event.get("text"))
            self._part.setdefault("logprobs", []).extend(
                event["logprobs"] if step == "delta" and "logprobs" in event else []
            )
            if "logprobs" not in event:
                del self._part["logprobs"]
        else:
            field = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}[word]
            _grow(self.open, field, step, event, event.get(field))

    def _take_part(self, place: str, step: str, event: Event) -> None:
        assert self.open is not None
        if step == "added":
            self._part = dict(event["part"])
            self.open[place].append(self._part)
        else:
            assert event["part"] == self._part
            self._part = None


def _grow(target: Event, field: str, step: str, event: Event, whole: str | None) -> None:
    if step == "delta":
        assert event["delta"] or event.get("logprobs")
        target[field] += event["delta"]
    else:
        assert (step, whole) == ("done", target[field])


def _packed(item: Event) -> Event:
    """The checks at the end of an item."""
    return {"encrypted_content": item["encrypted_content"]} if "encrypted_content" in item else {}
