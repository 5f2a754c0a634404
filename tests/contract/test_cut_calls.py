"""A call that `max_tokens` cuts short before its arguments is no text, in any protocol, streamed or whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.ollama.support import HERMES
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_city", "parameters": PARAMETERS}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT | TOOLS),
    ("/v1/chat/completions", CHAT | {"functions": [FUNCTION]}),
    ("/v1/responses", {"model": "m", "input": "Hi", "tools": [{"type": "function", **FUNCTION}]}),
    (
        "/v1/messages",
        CHAT | {"max_tokens": 9, "tools": [{"name": "get_city", "input_schema": PARAMETERS}]},
    ),
    ("/api/chat", CHAT | TOOLS),
    ("/lmdeploy/v1/chat/completions", CHAT | TOOLS),
]
WHOLE = '<tool_call>\n{"name": "get_city", "arguments": '


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ROUTES)
async def test_a_call_cut_in_its_head_is_not_shown(path: str, body: dict[str, Any], stream: bool) -> None:
    async def answer(*pieces: str) -> str:
        facts = fake_facts(chat_templates={"default": HERMES})
        script = saying(*pieces, reason="length")
        async with http_client(FakeModels(FakeClient(name="m", facts=facts, script=script))) as client:
            response = await client.post(path, json=body | {"stream": stream})
        assert response.status_code == 200
        return response.text

    for at in range(1, len(WHOLE)):
        shown = await answer(WHOLE[:at]) if at % 2 else await answer(*WHOLE[:at])
        assert "<" not in shown and "tool_call>" not in shown and '\\"name' not in shown
