"""Decodes images in the test's process, for tests of other parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from jan_serve.image_decoding.decoder import decoded
from jan_serve.ipc.helper import LENGTH
from jan_serve.ipc.image_decoding import DecodeImage, decode_request, frame


@dataclass
class InlineDecoder:
    """Its `decode` is an ImageDecoder. Only for images written by tests. asked: what it decoded."""

    asked: list[DecodeImage] = field(default_factory=list[DecodeImage])

    async def decode(self, request: DecodeImage) -> bytes:
        """Decodes at once, what comes out of the decoder's pipe."""
        request = decode_request(frame(request)[LENGTH.size :])
        self.asked.append(request)
        return decoded(request.data, request.header, request.size)
