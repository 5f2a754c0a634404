"""Decodes the images and sounds that arrive on the pipe, one after another. The hidden command is `jan-serve media`.

`ipc.helper` enforces the limits of CPU time and memory.
"""

from __future__ import annotations

from typing import Final

from jan_serve.errors import InvalidRequest, JanServeError, ProtocolError
from jan_serve.ipc.helper import ran_out_of_memory, serve
from jan_serve.ipc.media_decoding import DecodedMedia, DecodeImage, decode_request, frame

CPU_LIMIT_S: Final = 15.0
"""The largest images take about two seconds on a slow machine, and the longest sounds about three."""

MEMORY_LIMIT_BYTES: Final = 1 << 30
"""A transparent image of the largest size takes three copies of 4 bytes a pixel, and each request has half of this."""


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(_Decoding(), cpu_limit_s=CPU_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class _Decoding:
    """A HelperWork."""

    def answer(self, body: bytes) -> DecodedMedia:
        try:
            request = decode_request(body)
            # Each library is imported by the first request that needs it.
            if isinstance(request, DecodeImage):
                from jan_serve.media_decoding.images import decoded as decoded_image

                return DecodedMedia(data=decoded_image(request.data, request.header, request.size))
            from jan_serve.media_decoding.audio import decoded as decoded_audio

            return DecodedMedia(data=decoded_audio(request.data, request.header, request.rate))
        except JanServeError as error:
            return DecodedMedia(code=error.code, payload=error.payload(), last=ran_out_of_memory(error))

    def refusal(self, error: MemoryError | ProtocolError) -> DecodedMedia:
        failure = InvalidRequest("the file needs more memory than one file may use")
        return DecodedMedia(code=failure.code, payload=failure.payload())

    def frame(self, reply: DecodedMedia) -> bytes:
        return frame(reply)
