"""Reads headers of model files in a killable process, so that requests never wait for the front's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.errors import EngineCrashed, InvalidModel, error_from_payload
from jan_serve.ipc.header_reading import HeaderRead, ReadHeader, decode_reply, frame
from jan_serve.supervisor.workers.helper_process import HelperLimit, HelperPool, helper_command

WALL_LIMIT_S: Final = 600.0
"""The process has the lowest priority: other work may take the whole machine for minutes."""


def default_header_command() -> tuple[str, ...]:
    return helper_command("headers")


class HeaderReader:
    """Lives on one event loop. Its process starts with the first header."""

    def __init__(self, command: Sequence[str]) -> None:
        self._pool: HelperPool[HeaderRead] = HelperPool(
            command, decode_reply, name="reader of headers", wall_limit_s=WALL_LIMIT_S, processes=1
        )

    async def facts(self, path: Path) -> HeaderFacts:
        """Of the model whose first file this is. Cancelling the call ends the work.

        Raises InvalidModel; EngineCrashed, Unavailable.
        """
        try:
            reply = await self._pool.ask(frame(ReadHeader(path=str(path))))
        except HelperLimit:
            raise InvalidModel(f"{path.name}: its header takes too long to read") from None
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        if reply.facts is None:
            raise EngineCrashed("The reader of headers answered without facts.")
        return reply.facts

    async def rest(self) -> None:
        """End the process if it has no work."""
        await self._pool.rest()

    async def close(self) -> None:
        await self._pool.close()
