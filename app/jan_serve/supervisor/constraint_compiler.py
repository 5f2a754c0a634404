"""Compiles constraints in killable processes. The first one starts with a load.

`ConstraintCompilerPool.translate` is a `generation.ports.ConstraintTranslator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.errors import GrammarTooComplex
from jan_serve.ipc.compiling import Compiled, CompileReply, decode_reply
from jan_serve.ipc.helper import framed
from jan_serve.supervisor.workers.helper_process import HelperLimit, HelperPool, helper_command

WALL_LIMIT_S: Final = 10.0
"""The process limits its own CPU time to less; this limit is for overloaded machines and other platforms."""

WAIT_LIMIT_S: Final = 10.0


def default_compile_command() -> tuple[str, ...]:
    return helper_command("compile")


class ConstraintCompilerPool:
    """Lives on one event loop."""

    def __init__(self, command: Sequence[str], *, wall_limit_s: float = WALL_LIMIT_S) -> None:
        self._pool: HelperPool[CompileReply] = HelperPool(
            command,
            decode_reply,
            name="constraint compiler",
            wall_limit_s=wall_limit_s,
            wait_limit_s=WAIT_LIMIT_S,
        )

    async def translate(self, request: bytes) -> Compiled:
        try:
            reply = await self._pool.ask(framed(request))
        except HelperLimit:
            raise GrammarTooComplex(
                "the constraint needs more time or memory than one request may use"
            ) from None
        return reply.compiled()

    async def start(self) -> None:
        """Start one process, so the first constraint does not wait for it."""
        await self._pool.start()

    async def rest(self) -> None:
        """End the processes that have no request; the next one starts one."""
        await self._pool.rest()

    async def close(self) -> None:
        await self._pool.close()
