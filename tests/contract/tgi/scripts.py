"""Scripts of engines for tests of TGI's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jan_serve.core.events import TokenInfo
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.support.engine.fake_client import Script, endings


def answers(*texts: str) -> Script:
    """One text for each request, in turn."""
    left = list(texts)

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        text = left.pop(0)
        yield Accepted(request.id, 3)
        for letter in text:
            yield Chunk(0, letter, (TokenInfo(ord(letter), letter.encode(), False, -0.5),), id=request.id)
        for event in endings(request, len(text)):
            yield event

    return script
