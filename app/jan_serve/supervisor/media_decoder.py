"""Decodes images and sound in killable processes. The first one starts with a model that sees or hears, or with the
first file.

`MediaDecoderPool.decode` is a `generation.ports.MediaDecoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.errors import InvalidAudio, InvalidImage, InvalidRequest, error_from_payload
from jan_serve.ipc.media_decoding import DecodedMedia, DecodeImage, DecodeMedia, decode_reply, frame
from jan_serve.supervisor.workers.helper_process import HelperLimit, HelperPool, helper_command

WALL_LIMIT_S: Final = 30.0
"""The process limits its own CPU time to less; this limit is for overloaded machines and other platforms."""

WAIT_LIMIT_S: Final = 60.0
"""Files of other requests may be large, and each takes seconds then."""


def default_decoding_command() -> tuple[str, ...]:
    return helper_command("media")


class MediaDecoderPool:
    """Lives on one event loop."""

    def __init__(self, command: Sequence[str], *, wall_limit_s: float = WALL_LIMIT_S) -> None:
        self._pool: HelperPool[DecodedMedia] = HelperPool(
            command,
            decode_reply,
            name="media decoder",
            wall_limit_s=wall_limit_s,
            wait_limit_s=WAIT_LIMIT_S,
        )

    async def decode(self, request: DecodeMedia) -> bytes:
        """The data as DecodedMedia has it. Cancelling the call ends the work.

        Raises InvalidImage, InvalidAudio; EngineCrashed, Unavailable.
        """
        try:
            reply = await self._pool.ask(frame(request))
        except HelperLimit:
            raise _beyond_limits(request) from None
        if reply.code == InvalidRequest.code:
            raise _beyond_limits(request)
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        return reply.data

    async def start(self) -> None:
        """Start one process, so the first file does not wait for it."""
        await self._pool.start()

    async def rest(self) -> None:
        """End the processes that have no request; the next one starts one."""
        await self._pool.rest()

    async def close(self) -> None:
        await self._pool.close()


def _beyond_limits(request: DecodeMedia) -> InvalidRequest:
    reason = "needs more time or memory than one file may use"
    if isinstance(request, DecodeImage):
        return InvalidImage(f"the image {reason}")
    return InvalidAudio(f"the audio {reason}")
