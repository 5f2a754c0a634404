"""Decodes the images that arrive on the pipe, one after another. The hidden command is `jan-serve images`.

`ipc.helper` enforces the limits of CPU time and memory.
"""

from __future__ import annotations

from typing import Final

from jan_serve.errors import InvalidImage, JanServeError, ProtocolError
from jan_serve.image_decoding.decoder import decoded
from jan_serve.ipc.helper import ran_out_of_memory, serve
from jan_serve.ipc.image_decoding import DecodedImage, decode_request, frame

CPU_LIMIT_S: Final = 15.0
"""The largest images take about two seconds on a slow machine."""

MEMORY_LIMIT_BYTES: Final = 1 << 30
"""A transparent image of the largest size takes three copies of 4 bytes a pixel, and each request has half of this."""


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(_Imaging(), cpu_limit_s=CPU_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class _Imaging:
    """A HelperWork."""

    def answer(self, body: bytes) -> DecodedImage:
        try:
            request = decode_request(body)
            return DecodedImage(pixels=decoded(request.data, request.header, request.size))
        except JanServeError as error:
            return DecodedImage(code=error.code, payload=error.payload(), last=ran_out_of_memory(error))

    def refusal(self, error: MemoryError | ProtocolError) -> DecodedImage:
        reason = "needs more memory than one image may use" if isinstance(error, MemoryError) else str(error)
        failure = InvalidImage(f"the image {reason}")
        return DecodedImage(code=failure.code, payload=failure.payload())

    def frame(self, reply: DecodedImage) -> bytes:
        return frame(reply)
