"""Streams are live: text reaches the client before the model writes the rest."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.engine.engines import Gate
from tests.support.servers.front_process import front_process

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the gate is a FIFO"),
]


async def read_until(wanted: str, events: AsyncIterator[Any]) -> str:
    """The pieces once their text is as long as `text`: pieces merge if a reader is slow."""
    text = ""
    while len(text) < len(wanted):
        event = await anext(events)
        text += "".join(choice.text for choice in event.choices)
    return text


@pytest.mark.timeout(60)
async def test_pieces_arrive_before_the_answer_ends(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with front_process(tmp_path, drain_s=5) as front:
        client = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{front.port}/v1", api_key="any", max_retries=0
        )
        async with client:
            events = aiter(
                await client.completions.create(model="fake", prompt=f"!gate {gate.path} 3", stream=True)
            )
            # The model writes nothing more until the gate opens: these pieces came over the live stream.
            assert await read_until("0 1 2 ", events) == "0 1 2 "
            gate.open()
            assert await read_until("done", events) == "done"
