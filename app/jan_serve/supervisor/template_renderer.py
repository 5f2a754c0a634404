"""Renders chat templates in processes that can be ended: a few of them, started when they are needed.

Implements `generation.ports.TemplateRenderer`. Knows nothing of templates.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from jan_serve.errors import EngineCrashed, ProtocolError, TemplateError, Unavailable, error_from_payload
from jan_serve.ipc.rendering import LENGTH, MAX_FRAME_BYTES, RenderReply, RenderRequest, decode_reply, frame
from jan_serve.supervisor.child_process import ChildProcess
from jan_serve.supervisor.worker_process import worker_environment

logger = logging.getLogger(__name__)

WALL_LIMIT_S: Final = 10.0
"""The process limits its own CPU time to less; this is for a machine that has none to give, and other platforms."""

PROCESSES: Final = 2
"""So that one template that runs into its limit does not hold up everybody."""

ATTEMPTS: Final = 2
"""How often a request is given to a process, where something other than the template's limits ends that."""

_OVER_TIME: Final = -signal.SIGPROF if sys.platform != "win32" else None
"""The return code of a process that used up its CPU time."""


def default_render_command() -> tuple[str, ...]:
    """Our own hidden subcommand. -P: the working directory must not be able to shadow a module."""
    if getattr(sys, "frozen", False):
        return (sys.executable, "render")
    return (sys.executable, "-P", "-m", "jan_serve", "render")


class TemplateRendererPool:
    """Lives on one event loop. A process that was ended, or said its last, is replaced with the next request."""

    def __init__(self, command: Sequence[str], *, wall_limit_s: float = WALL_LIMIT_S) -> None:
        self._command = tuple(command)
        self._wall_limit_s = wall_limit_s
        self._idle: list[ChildProcess] = []
        self._places = asyncio.Semaphore(PROCESSES)
        self._tasks: set[asyncio.Task[str]] = set()
        self._closed = False

    async def start(self) -> None:
        """Have one process ready, so that the first chat does not wait for it. Failing is left to the first chat."""
        try:
            self._idle.append(await self._spawn())
        except Unavailable as error:
            logger.warning("%s", error.message)

    async def render(self, request: RenderRequest) -> str:
        """The prompt's text. Raises TemplateError, and what else the template's error is; EngineCrashed, Unavailable.

        Cancelling the call does not end the render, which is short.
        """
        task = asyncio.create_task(self._render(request))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._idle:
            await _end(process)
        self._idle.clear()

    def _done(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even where nobody waits any more

    async def _render(self, request: RenderRequest) -> str:
        data = frame(request)
        async with self._places:
            reply = await self._reply(data)
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        return reply.text

    async def _reply(self, data: bytes) -> RenderReply:
        """Raises TemplateError where a limit of the template ended its process, else EngineCrashed."""
        for attempt in range(ATTEMPTS):
            process = self._idle.pop() if self._idle and attempt == 0 else await self._spawn()
            reply = await self._ask(process, data)
            if reply is not None:
                return reply
            logger.warning("template renderer %s ended: %s", process.pid, process.status)
        raise EngineCrashed(
            "The template renderer ended before the prompt was rendered. Send the request again."
        )

    async def _ask(self, process: ChildProcess, data: bytes) -> RenderReply | None:
        """None where something other than the template's limits ended the process."""
        try:
            async with asyncio.timeout(self._wall_limit_s):
                reply = await _exchange(process, data)
        except TimeoutError:
            await _end(process)
            raise _over_limit() from None
        except (ConnectionError, asyncio.IncompleteReadError):
            # A closed pipe is the end of the process: killing it then does not change how it ended.
            await _end(process)
            if process.returncode == _OVER_TIME:
                raise _over_limit() from None
            return None
        except BaseException:
            await _end(process)
            raise
        if reply.last:
            await _end(process)
        else:
            self._idle.append(process)
        return reply

    async def _spawn(self) -> ChildProcess:
        try:
            process = await ChildProcess.spawn(self._command, worker_environment(os.environ))
        except OSError as error:
            raise Unavailable(f"the template renderer could not be started: {error.strerror}") from error
        logger.debug("template renderer %s started", process.pid)
        return process


def _over_limit() -> TemplateError:
    return TemplateError(
        "the chat template needed more time or memory than it may have and was ended", param="messages"
    )


async def _exchange(process: ChildProcess, data: bytes) -> RenderReply:
    process.stdin.write(data)
    await process.stdin.drain()
    length: int = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"the renderer announces {length} bytes")
    return decode_reply(await process.stdout.readexactly(length))


async def _end(process: ChildProcess) -> None:
    process.kill()
    await process.exited.wait()
    process.close()
