"""Decodes images in killable processes. The first one starts with a model that sees, or with the first image.

`ImageDecoderPool.decode` is a `generation.ports.ImageDecoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.errors import InvalidImage, error_from_payload
from jan_serve.ipc.image_decoding import DecodedImage, DecodeImage, decode_reply, frame
from jan_serve.supervisor.workers.helper_process import HelperLimit, HelperPool, helper_command

WALL_LIMIT_S: Final = 30.0
"""The process limits its own CPU time to less; this limit is for overloaded machines and other platforms."""

WAIT_LIMIT_S: Final = 60.0
"""Images of other requests may be large, and each takes seconds then."""


def default_imaging_command() -> tuple[str, ...]:
    return helper_command("images")


class ImageDecoderPool:
    """Lives on one event loop."""

    def __init__(self, command: Sequence[str], *, wall_limit_s: float = WALL_LIMIT_S) -> None:
        self._pool: HelperPool[DecodedImage] = HelperPool(
            command,
            decode_reply,
            name="image decoder",
            wall_limit_s=wall_limit_s,
            wait_limit_s=WAIT_LIMIT_S,
        )

    async def decode(self, request: DecodeImage) -> bytes:
        """The pixels as DecodedImage has them. Cancelling the call ends the work.

        Raises InvalidImage; EngineCrashed, Unavailable.
        """
        try:
            reply = await self._pool.ask(frame(request))
        except HelperLimit:
            raise InvalidImage("the image needs more time or memory than one image may use") from None
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        return reply.pixels

    async def start(self) -> None:
        """Start one process, so the first image does not wait for it."""
        await self._pool.start()

    async def rest(self) -> None:
        """End the processes that have no request; the next one starts one."""
        await self._pool.rest()

    async def close(self) -> None:
        await self._pool.close()
