"""Renders chat templates in killable processes. The first one starts with the server, or with a load after a rest.

`TemplateRendererPool.render` is a `generation.ports.TemplateRenderer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from jan_serve.errors import TemplateError, error_from_payload
from jan_serve.ipc.rendering import RenderReply, RenderRequest, decode_reply, frame
from jan_serve.supervisor.workers.helper_process import HelperLimit, HelperPool, helper_command

WALL_LIMIT_S: Final = 10.0
"""The process limits its own CPU time to less; this limit is for overloaded machines and other platforms."""


def default_render_command() -> tuple[str, ...]:
    return helper_command("render")


class TemplateRendererPool:
    """Lives on one event loop."""

    def __init__(self, command: Sequence[str], *, wall_limit_s: float = WALL_LIMIT_S) -> None:
        self._pool: HelperPool[RenderReply] = HelperPool(
            command, decode_reply, name="template renderer", wall_limit_s=wall_limit_s
        )
        self._tasks: set[asyncio.Task[str]] = set()

    async def start(self) -> None:
        """Start one process, so the first chat does not wait for it. A failure shows up in the first chat."""
        await self._pool.start()

    def start_soon(self) -> None:
        """As `start`, beside what the caller does."""
        self._pool.start_soon()

    async def rest(self) -> None:
        """End the processes that have no request; the next one starts one."""
        await self._pool.rest()

    async def render(self, request: RenderRequest) -> str:
        """The prompt's text. Raises the template's error, EngineCrashed and Unavailable.

        Cancelling the call does not end the render, which is short.
        """
        task = asyncio.create_task(self._render(request))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def close(self) -> None:
        await self._pool.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even where nobody waits any more

    async def _render(self, request: RenderRequest) -> str:
        try:
            reply = await self._pool.ask(frame(request))
        except HelperLimit:
            raise TemplateError(
                "the chat template needed more time or memory than it may have and was ended",
                param="messages",
            ) from None
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        return reply.text
