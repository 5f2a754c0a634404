"""Calls of Ollama's API over a fake engine, with times replaced by marks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.engine.fake_client import FakeClient, FakeModels, Script, fake_facts, saying
from tests.support.engine.fake_vocabulary import CHAT_TEMPLATE, THINKING_TEMPLATE
from tests.support.servers.fronts import http_client

NAME = "m"
CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
TEXT: dict[str, Any] = {"model": NAME, "prompt": "Hi"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
HERMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ m.tool_calls }}<|im_end|>\n{% endfor %}"
    "{% if tools %}<tools>{{ tools | tojson }}</tools> <tool_call>{% endif %}<|im_start|>assistant\n"
)

_TIME = re.compile(r'"created_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"')
_WALL = re.compile(r'"(total_duration|load_duration)":[1-9]\d*')


def model(script: Script | None = None, template: str | None = CHAT_TEMPLATE, **facts: Any) -> FakeModels:
    templates = {} if template is None else {"default": template}
    made = fake_facts(chat_templates=templates, **facts)
    return FakeModels(FakeClient(name=NAME, facts=made, script=script or saying("Hel", "lo.")))


def thinking_model(script: Script | None = None) -> FakeModels:
    return model(script, THINKING_TEMPLATE)


async def call(path: str, body: Any, models: FakeModels | None = None) -> tuple[int, str]:
    """Status, and the body with the same times for all."""
    async with http_client(models or model()) as client:
        response = await client.post(path, json=body)
    if response.headers["content-type"] != "application/x-ndjson":
        assert response.headers["content-type"] == "application/json"
    return response.status_code, _WALL.sub(r'"\1":1', _TIME.sub('"created_at":"T"', response.text))


async def lines(path: str, body: Any, models: FakeModels | None = None) -> list[Any]:
    """The objects of a stream."""
    status, text = await call(path, body, models)
    assert status == 200, text
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


async def error(path: str, body: Any, models: FakeModels | None = None) -> tuple[int, str]:
    status, text = await call(path, body, models)
    answer = json.loads(text)
    assert list(answer) == ["error"]
    return status, answer["error"]


def told(models: FakeModels) -> Any:
    """The only request that reached the engine."""
    [request] = models.clients[0].requests
    return request


anyio = pytest.mark.anyio
