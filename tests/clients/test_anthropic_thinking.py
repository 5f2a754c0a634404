"""Anthropic's own client and a model that thinks, which is scripted."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.clients.running import run_client
from tests.clients.test_python_clients import PYTHON, RUN
from tests.contract.anthropic.test_messages import TEMPLATE
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.fronts import live_server

ANSWER: Final = (
    '<think>\nHmm.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)"),
]


async def test_thoughts_calls_and_their_way_back() -> None:
    facts = fake_facts(chat_templates={"default": TEMPLATE})
    models = FakeModels(FakeClient(script=saying(*ANSWER), facts=facts))
    async with live_server(models) as port:
        await asyncio.to_thread(run_client, PYTHON, RUN, "anthropic_thinking", f"http://127.0.0.1:{port}")
