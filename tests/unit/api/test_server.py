"""What ends with the server, even if an interrupt cancels the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jan_serve.api.server import serve_and_close

pytestmark = pytest.mark.anyio


class Part:
    """Stands in for every part; closing the one named `slow` waits for ever."""

    started = True

    def __init__(self, ended: list[str], slow: str = "") -> None:
        self.ended = ended
        self.slow = slow
        self.is_slow = asyncio.Event()

    def named(self, name: str) -> Any:
        async def close(*_: object) -> None:
            self.ended.append(name)
            if name == self.slow:
                self.is_slow.set()
                await asyncio.Event().wait()

        return type("Closing", (), {"close": close, "shutdown": close, "start": self.start})

    async def start(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("start")

    async def serve(self, sockets: object) -> None:
        await asyncio.sleep(0)  # lets `start` begin


@pytest.mark.parametrize("slow", ["models", "control", "renderer"])
async def test_an_interrupt_of_the_end_skips_nothing(slow: str) -> None:
    ended: list[str] = []
    part = Part(ended, slow)
    server: Any = part
    models, renderer, translator, control = map(part.named, ("models", "renderer", "translator", "control"))
    sock: Any = None
    serving = asyncio.ensure_future(
        serve_and_close(server, models, renderer, translator, sock, None, control=control)
    )
    await part.is_slow.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert ended == ["start", "models", "control", "renderer", "translator"]
