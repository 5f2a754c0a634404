"""`add_generation_prompt` and `continue_final_message`, on chats and on the template alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
USER = {"role": "user", "content": "Hi"}
BEGUN = {"role": "assistant", "content": "He"}


async def prompts(body: dict[str, Any]) -> tuple[str, str]:
    """The prompt of /apply-template, and that of a chat."""
    seen: list[str] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        seen.append("".join(str(piece) for piece in request.prompt))
        async for event in saying("a")(request):
            yield event

    facts = fake_facts(chat_templates={"default": TEMPLATE})
    async with http_client(FakeModels(FakeClient(name="m", facts=facts, script=script))) as client:
        applied = await client.post("/apply-template", json={"model": "m"} | body)
        chat = await client.post("/v1/chat/completions", json={"model": "m"} | body)
    assert (applied.status_code, chat.status_code) == (200, 200)
    return applied.json()["prompt"], seen[0]


@pytest.mark.parametrize(
    ("fields", "after_user", "after_assistant"),
    [
        ({}, "<user>Hi</><assistant>", "<user>Hi</><assistant>He"),
        ({"add_generation_prompt": None}, "<user>Hi</><assistant>", "<user>Hi</><assistant>He"),
        ({"add_generation_prompt": True}, "<user>Hi</><assistant>", "<user>Hi</><assistant>He"),
        ({"add_generation_prompt": False}, "<user>Hi</>", "<user>Hi</><assistant>He</>"),
        (
            {"continue_final_message": False},
            "<user>Hi</><assistant>",
            "<user>Hi</><assistant>He</><assistant>",
        ),
        (
            {"continue_final_message": False, "add_generation_prompt": True},
            "<user>Hi</><assistant>",
            "<user>Hi</><assistant>He</><assistant>",
        ),
        (
            {"continue_final_message": False, "add_generation_prompt": False},
            "<user>Hi</>",
            "<user>Hi</><assistant>He</>",
        ),
        ({"continue_final_message": True}, None, "<user>Hi</><assistant>He"),
        (
            {"continue_final_message": True, "add_generation_prompt": False},
            None,
            "<user>Hi</><assistant>He",
        ),
    ],
)
async def test_the_end_of_the_prompt(
    fields: dict[str, Any], after_user: str | None, after_assistant: str
) -> None:
    assert await prompts({"messages": [USER, BEGUN]} | fields) == (after_assistant,) * 2
    if after_user is not None:
        assert await prompts({"messages": [USER]} | fields) == (after_user,) * 2


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [USER, BEGUN], "add_generation_prompt": True, "continue_final_message": True},
        {"messages": [USER], "continue_final_message": True},
        {
            "messages": [USER, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}],
            "continue_final_message": True,
        },
    ],
)
async def test_what_contradicts_is_refused(body: dict[str, Any]) -> None:
    async with http_client(FakeModels(FakeClient(name="m"))) as client:
        for path in ("/apply-template", "/v1/chat/completions"):
            response = await client.post(path, json={"model": "m"} | body)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == "continue_final_message"
