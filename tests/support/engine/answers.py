"""The events of an answer that one worker gives."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from jan_serve.ipc.messages import EngineEvent, EngineRequest, RequestCompleted
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient


async def events_of(client: WorkerEngineClient, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
    """Up to RequestCompleted. Closing the iterator aborts the request."""
    async with client.opened(request) as inbox:
        while not isinstance(event := await inbox.get(), RequestCompleted):
            yield event
        yield event
