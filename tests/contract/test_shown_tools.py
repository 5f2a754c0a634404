"""A request that names tools to call has the prompt of one that does not: the tools stay in the prefix cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.contract.anthropic.test_messages import TEMPLATE
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, prompt_text, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"a": {"type": "string"}}}
NAMES: Final = ("one", "two", "three")
PLAIN: Final[list[dict[str, Any]]] = [{"name": name, "parameters": SCHEMA} for name in NAMES]
NESTED: Final = [{"type": "function", "function": tool} for tool in PLAIN]
FLAT: Final = [{"type": "function", **tool} for tool in PLAIN]
MESSAGES: Final = [{"role": "user", "content": "Hi"}]
ONE: Final = {"type": "function", "function": {"name": "one"}}
FLAT_ONE: Final = {"type": "function", "name": "one"}

ROUTES: Final[dict[str, tuple[dict[str, Any], list[Any]]]] = {
    "/v1/chat/completions": (
        {"messages": MESSAGES, "tools": NESTED},
        [
            "required",
            ONE,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [ONE]}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ONE]}},
        ],
    ),
    "/v1/responses": (
        {"input": "Hi", "tools": FLAT},
        ["required", FLAT_ONE, {"type": "allowed_tools", "mode": "required", "tools": [FLAT_ONE]}],
    ),
    "/v1/messages": (
        {
            "max_tokens": 50,
            "messages": MESSAGES,
            "tools": [{"name": name, "input_schema": SCHEMA} for name in NAMES],
        },
        [{"type": "any"}, {"type": "tool", "name": "one"}],
    ),
    "/lmdeploy/v1/chat/completions": ({"messages": MESSAGES, "tools": NESTED}, ["required", ONE]),
}


@pytest.mark.parametrize("path", ROUTES)
async def test_the_prompt_is_the_same_whichever_tool_may_be_called(path: str) -> None:
    seen: list[EngineRequest] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        seen.append(request)
        async for event in saying('<tool_call>\n{"name": "one", "arguments": {}}\n</tool_call>')(request):
            yield event

    body, choices = ROUTES[path]
    facts = fake_facts(n_ctx=100_000, chat_templates={"default": TEMPLATE})
    async with http_client(FakeModels(FakeClient("m", facts, script))) as client:
        for fields in ({}, *({"tool_choice": choice} for choice in choices)):
            answer = await client.post(path, json={"model": "m"} | body | fields)
            assert answer.status_code == 200, answer.text
    first, *others = map(prompt_text, seen)
    assert all(f'"name": "{name}"' in first for name in NAMES)
    assert others == [first] * len(choices)
    # What may be called is what differs.
    guides = [request.guide for request in seen]
    assert all(guide != guides[0] for guide in guides[1:])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_tool_that_is_not_there_cannot_be_allowed(path: str) -> None:
    body, choices = ROUTES[path]
    wrong: Any = (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{**ONE, "function": {"name": "no"}}]},
        }
        if "chat" in path
        else {**choices[-1], "tools": [{**FLAT_ONE, "name": "no"}]}
    )
    async with http_client() as client:
        answer = await client.post(path, json=body | {"tool_choice": wrong})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tool_choice") and "'no'" in error["message"]
