"""Bodies and every event of /v1/responses have the published types of Open Responses.

Runs in the environment of the clients, against the server of JAN_SERVE_URL.
"""

from __future__ import annotations

import enum
import inspect
import json
import os
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import openresponses_types
import pytest
from pydantic import BaseModel

URL = os.environ["JAN_SERVE_URL"]
MODEL = "jan-tiny"
RED = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CABzGMSuNDALgpY53qsYPpAAAAAElF"
    "TkSuQmCC"
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
TURNS = [
    {"type": "message", "role": "user", "content": "My name is Ada."},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello, Ada!"}]},
    {"type": "message", "role": "user", "content": "What is my name?"},
]
CALL = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Sunny, 20 degrees"}
PICTURE = [
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What do you see?"},
            {"type": "input_image", "image_url": RED, "detail": "auto"},
        ],
    }
]
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Hello!"},
    "instructions": {"input": "Hello!", "instructions": "Answer in one word."},
    "system item": {"input": [{"type": "message", "role": "system", "content": "Be brief."}, *TURNS[:1]]},
    "several turns": {"input": TURNS},
    "tool": {"input": "The weather in Paris?", "tools": [WEATHER], "tool_choice": "required"},
    "result": {"input": [TURNS[0], CALL, RESULT], "tools": [WEATHER]},
    "picture": {"input": PICTURE},
    "schema": {
        "input": "A person",
        "text": {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}},
    },
    "cut": {"input": "Tell me a story.", "max_output_tokens": 16},
    "thought": {"input": "Think: what is 2 + 2?", "reasoning": {"effort": "low", "summary": "auto"}},
}


def _types() -> dict[str, type[BaseModel]]:
    """The classes of events, by the `type` that they fix."""
    found: dict[str, type[BaseModel]] = {}
    for name, kind in inspect.getmembers(openresponses_types, inspect.isclass):
        if name.endswith("StreamingEvent"):
            kinds = kind.model_fields["type"].annotation
            # An enumeration of one value, or that value.
            values = [each.value for each in kinds] if isinstance(kinds, enum.EnumMeta) else get_args(kinds)
            found |= dict.fromkeys(map(str, values), kind)
    return found


EVENTS = _types()


def _events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with httpx.stream("POST", f"{URL}/v1/responses", json=body, timeout=120) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_body_has_the_published_type(kind: str) -> None:
    response = httpx.post(f"{URL}/v1/responses", json={"model": MODEL, **REQUESTS[kind]}, timeout=120)
    assert response.status_code == 200, response.text
    openresponses_types.ResponseResource.model_validate(response.json())


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_event_has_the_published_type(kind: str) -> None:
    events = list(_events({"model": MODEL, "stream": True, **REQUESTS[kind]}))
    for event in events:
        EVENTS[event["type"]].model_validate(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] in ("response.completed", "response.incomplete")


def test_a_schema_is_shown_as_it_was_sent_and_all_else_has_the_published_type() -> None:
    asked = {"model": MODEL, **REQUESTS["schema"]}
    events = list(_events({**asked, "stream": True}))
    bodies = [event["response"] for event in events if "response" in event]
    bodies.append(httpx.post(f"{URL}/v1/responses", json=asked, timeout=120).json())
    for body in bodies:
        form = body["text"]["format"]
        assert form["schema"] == SCHEMA
        form["schema"] = None
        openresponses_types.ResponseResource.model_validate(body)
    for event in events:
        EVENTS[event["type"]].model_validate(event)
