"""A control plane with real links; its other parts record their calls."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import httpx

from jan_serve.api.app import create_app
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.errors import InvalidRequest
from jan_serve.supervisor.kv_transfer.peer_links import TcpPeerLinks
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings


class FakeControl:
    """ControlPlane. levels: of the sleeps, in order. updates: of weights; takes what begins as a GGUF file."""

    def __init__(self, *, may_abort: bool = True, may_terminate: bool = True) -> None:
        self.links = TcpPeerLinks("127.0.0.1", patience_s=2.0)
        self.may_abort = may_abort
        self.may_terminate = may_terminate
        self.levels: list[int] = []
        self.updates: list[tuple[str | None, list[bytes], bool]] = []
        self.terminations = 0
        self._asleep: set[str] = set()

    @property
    def is_sleeping(self) -> bool:
        """Until both tags are awake."""
        return bool(self._asleep)

    async def sleep(self, level: int) -> None:
        self.levels.append(level)
        self._asleep = {"weights", "kv_cache"}

    async def wake(self, tags: Iterable[str]) -> None:
        self._asleep -= set(tags) or self._asleep

    async def update_weights(self, model: str | None, parts: Sequence[bytes], *, finished: bool) -> None:
        if not all(part.startswith(b"GGUF") for part in parts):
            raise InvalidRequest("this is not a GGUF file")
        self.updates.append((model, list(parts), finished))

    def terminate(self) -> None:
        self.terminations += 1


@contextlib.asynccontextmanager
async def controlled_client(
    control: FakeControl, models: FakeModels | None = None, **settings: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client whose requests go to an application with this control plane, without a socket."""
    app = create_app(
        make_settings(**settings),
        models or FakeModels(),
        render_inline,
        translate_inline,
        control=control,
        dialects=(lmdeploy_dialect,),
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client
    finally:
        await control.links.close()
