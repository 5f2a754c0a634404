"""Decodes images and sounds in the test's process, for tests of other parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from jan_serve.ipc.helper import LENGTH
from jan_serve.ipc.media_decoding import DecodeImage, DecodeMedia, decode_request, frame
from jan_serve.media_decoding import audio, images


@dataclass
class InlineDecoder:
    """Its `decode` is a MediaDecoder. Only for files written by tests. asked: what it decoded."""

    asked: list[DecodeMedia] = field(default_factory=list[DecodeMedia])

    async def decode(self, request: DecodeMedia) -> bytes:
        """Decodes at once, what comes out of the decoder's pipe."""
        request = decode_request(frame(request)[LENGTH.size :])
        self.asked.append(request)
        if isinstance(request, DecodeImage):
            return images.decoded(request.data, request.header, request.size)
        return audio.decoded(request.data, request.header, request.rate)
